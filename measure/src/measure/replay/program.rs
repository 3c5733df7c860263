//! Allocations and frees of optimizer steps, for any micro-batch.

use std::collections::{HashMap, HashSet};

use super::pools::ALIGNMENT;

/// Alignment of vectors of 32-bit numbers.
const VALUE_ALIGN: u64 = 4;

/// Run of equal ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Parameters get their first values.
    Parameters,
    /// The optimizer and the micro-batch are made.
    Batch,
    /// A forward pass.
    Forward,
    /// A backward pass, with the loss alive before it.
    Backward,
    /// Gradients are added up, or parameters change.
    Update,
    /// An optimizer step ended.
    End,
}

/// Next event, with allocations by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Enter(Phase),
    Allocate(usize),
    Free(usize),
}

/// An allocation as the CPU made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allocation {
    pub(super) bytes: u64,
    pub(super) align: u64,
    pub(super) zeroed: bool,
}

/// A run at one micro-batch.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    pub(super) ops: Vec<Op>,
    pub(super) allocations: Vec<Allocation>,
}

/// The size of an allocation on a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    /// At the two micro-batches that were run, with values in four bytes and without padding.
    pub(super) bytes: [u64; 2],
    /// Values in a row, where rows are padded.
    row: Option<u64>,
}

/// A run at any micro-batch.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) ops: Vec<Op>,
    pub(super) sizes: Vec<Size>,
    /// Allocations of the CPU; later ones are of GPUs only.
    pub(super) made: Vec<Allocation>,
    /// Allocations outside the pools.
    pub(super) persistent: HashSet<usize>,
    /// The micro-batches that were run.
    pub(super) batches: [u64; 2],
}

impl Op {
    pub(super) fn allocated(&self) -> Option<usize> {
        if let Self::Allocate(id) = self { Some(*id) } else { None }
    }

    pub(super) fn freed(&self) -> Option<usize> {
        if let Self::Free(id) = self { Some(*id) } else { None }
    }

    /// Returns true if the op allocates or frees one of some allocations.
    pub(super) fn is_of(&self, ids: &HashSet<usize>) -> bool {
        self.allocated().or(self.freed()).is_some_and(|id| ids.contains(&id))
    }
}

impl Allocation {
    /// Returns true for a vector of 32-bit numbers.
    pub(super) fn is_values(self) -> bool {
        self.align == VALUE_ALIGN
    }

    /// Returns true for a zeroed vector, with which Burn's convolutions on the CPU begin.
    pub(super) fn is_zeros(self) -> bool {
        self.zeroed && self.is_values()
    }
}

impl Size {
    /// As large as on the CPU.
    pub(super) fn plain(bytes: [u64; 2]) -> Self {
        Self { bytes, row: None }
    }

    /// Size of rows with a number of values.
    pub(super) fn rows(rows: [u64; 2], row: u64) -> Self {
        Self { bytes: rows.map(|rows| rows * row * 4), row: Some(row) }
    }

    /// Returns true if the size does not depend on the micro-batch.
    pub(super) fn is_constant(self) -> bool {
        self.bytes[0] == self.bytes[1]
    }

    /// Returns true if rows are padded, for values of so many bytes.
    pub(super) fn is_padded(self, value_bytes: u64) -> bool {
        self.row.is_some_and(|row| pitch(row, value_bytes) != row * value_bytes)
    }
}

impl Program {
    /// Bytes of an allocation at a micro-batch.
    pub(super) fn bytes(&self, id: usize, batch: u64, value_bytes: u64) -> u64 {
        let Size { bytes: [first, second], row } = self.sizes[id];
        let [first, second, from, to, at] = [first, second, self.batches[0], self.batches[1], batch].map(i128::from);
        // The numbers of a network's bytes are far from the ends of 128 bits.
        let on_cpu = u64::try_from(first + (second - first) * (at - from) / (to - from)).unwrap_or(0);
        row.map_or(on_cpu * value_bytes / 4, |row| on_cpu / (4 * row) * pitch(row, value_bytes))
    }

    /// Adds an allocation that only GPUs make.
    pub(super) fn add(&mut self, size: Size) -> usize {
        self.sizes.push(size);
        self.sizes.len() - 1
    }
}

/// Bytes of a row of so many values, as `CubeCL` lays out rows on CUDA (`optimal_align`).
pub(super) fn pitch(values: u64, value_bytes: u64) -> u64 {
    let bytes = values * value_bytes;
    if values <= 1 { bytes } else { bytes.next_multiple_of(bytes.next_power_of_two().clamp(16, ALIGNMENT)) }
}

/// The place of the op that frees each allocation.
pub(super) fn deaths(ops: &[Op]) -> HashMap<usize, usize> {
    ops.iter().enumerate().filter_map(|(place, op)| op.freed().map(|id| (id, place))).collect()
}

/// The ops of each phase, the first one's from its beginning.
pub(super) fn phases(ops: &[Op]) -> impl Iterator<Item = &[Op]> {
    ops.chunk_by(|_, next| !matches!(next, Op::Enter(_)))
}
