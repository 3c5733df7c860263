//! Allocations and frees of optimizer steps, for any micro-batch.

use std::collections::{HashMap, HashSet};

use super::pools::ALIGNMENT;

/// Alignment of vectors of 32-bit numbers.
const VALUE_ALIGN: u64 = 4;
/// Longest run of allocations left by a step without a counterpart in the next.
const FURTHEST: usize = 16;

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
    /// At the two micro-batches that were run, with values in four bytes.
    bytes: [u64; 2],
    /// Values in a row, where rows are padded.
    row: Option<u64>,
    /// True if the size is the same with values of two bytes.
    is_integer: bool,
    /// Terms of a sum at the two micro-batches, which is made in pieces that each take as much.
    terms: Option<[u64; 2]>,
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
    /// Returns true for a zeroed vector, with which Burn's convolutions on the CPU begin.
    pub(super) fn is_zeros(self) -> bool {
        self.zeroed && self.align == VALUE_ALIGN
    }
}

impl Size {
    /// As large as on the CPU.
    pub(super) fn plain(bytes: [u64; 2]) -> Self {
        Self { bytes, row: None, is_integer: false, terms: None }
    }

    /// Integers, which take half of what they take on the CPU.
    pub(super) fn integers(bytes: [u64; 2]) -> Self {
        Self { is_integer: true, ..Self::plain(bytes.map(|bytes| bytes / 2)) }
    }

    /// Size of rows with a number of values.
    pub(super) fn rows(rows: [u64; 2], row: u64) -> Self {
        Self { row: Some(row), ..Self::plain(rows.map(|rows| rows * row * 4)) }
    }

    /// Size of a part of a sum over so many terms.
    pub(super) fn in_pieces(self, terms: [u64; 2]) -> Self {
        Self { terms: Some(terms), ..self }
    }

    /// Bytes at the two micro-batches that were run, without padding.
    pub(super) fn bytes(self) -> [u64; 2] {
        self.bytes
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
        let Size { bytes, row, is_integer, terms } = self.sizes[id];
        let on_cpu = self.at(bytes, batch);
        let bytes = match row {
            Some(row) => on_cpu / (4 * row) * pitch(row, value_bytes),
            None if is_integer => on_cpu,
            None => on_cpu * value_bytes / 4,
        };
        terms.map_or(bytes, |terms| bytes * pieces(self.at(terms, batch)))
    }

    // The numbers of a network's bytes are far from the ends of 128 bits.
    fn at(&self, amounts: [u64; 2], batch: u64) -> u64 {
        let [[first, second], [from, to], [at, _]] =
            [amounts, self.batches, [batch; 2]].map(|pair| pair.map(i128::from));
        u64::try_from(first + (second - first) * (at - from) / (to - from)).unwrap_or(0)
    }

    /// Adds an allocation that only GPUs make.
    pub(super) fn add(&mut self, size: Size) -> usize {
        self.sizes.push(size);
        self.sizes.len() - 1
    }

    /// The program with its last step taken again and again, so that there are `steps` in all; `None` when there are not
    /// three to begin with.
    pub(super) fn repeated(mut self, steps: usize) -> Option<Self> {
        let is_end = |(place, op): (usize, &Op)| (*op == Op::Enter(Phase::End)).then_some(place);
        let ends: Vec<_> = self.ops.iter().enumerate().filter_map(is_end).collect();
        let [.., before, second, last] = ends[..] else { return None };
        self.ops.truncate(last + 1);
        let step = self.ops[second + 1..].to_vec();
        // What a step leaves, the next one frees: parameters are others after every step.
        let left = self.matched(&left(&self.ops[before + 1..=second]), &left(&step));
        let kept: HashSet<_> = left.iter().map(|(_, later)| *later).collect();
        let freed: HashSet<_> = step.iter().filter_map(Op::freed).collect();
        let mut current: Vec<_> = left.iter().map(|(_, later)| *later).collect();
        for _ in ends.len()..steps {
            let mut renamed: HashMap<_, _> = left.iter().map(|(earlier, _)| *earlier).zip(current).collect();
            for op in &step {
                match *op {
                    Op::Enter(_) => self.ops.push(*op),
                    // What is neither freed nor has a counterpart would pile up.
                    Op::Allocate(id) if kept.contains(&id) || freed.contains(&id) => {
                        renamed.insert(id, self.again(id));
                        self.ops.push(Op::Allocate(renamed[&id]));
                    }
                    Op::Allocate(_) => {}
                    Op::Free(id) => self.ops.extend(renamed.get(&id).copied().map(Op::Free)),
                }
            }
            current = left.iter().map(|(_, later)| renamed[later]).collect();
        }
        Some(self)
    }

    // Pairs of the same size, in order.
    fn matched(&self, mut earlier: &[usize], later: &[usize]) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for &later in later {
            let is_same = |earlier: &usize| self.sizes[*earlier] == self.sizes[later];
            if let Some(skip) = earlier.iter().take(FURTHEST).position(is_same) {
                pairs.push((earlier[skip], later));
                earlier = &earlier[skip + 1..];
            }
        }
        pairs
    }

    fn again(&mut self, id: usize) -> usize {
        self.made.push(self.made[id]);
        self.add(self.sizes[id])
    }
}

/// Bytes of a row of so many values, as `CubeCL` lays out rows on CUDA (`optimal_align`).
pub(super) fn pitch(values: u64, value_bytes: u64) -> u64 {
    let bytes = values * value_bytes;
    if values <= 1 { bytes } else { bytes.next_multiple_of(bytes.next_power_of_two().clamp(16, ALIGNMENT)) }
}

/// Pieces in which `burn-cubecl` adds up so many terms; none where they are too few (`split_count`).
fn pieces(terms: u64) -> u64 {
    const FEWEST_TERMS: u64 = 2048;
    const MOST_PIECES: u64 = 64;
    let most = (terms / FEWEST_TERMS).min(MOST_PIECES);
    let mut powers = (1..=most.checked_ilog2().unwrap_or(0)).rev().map(|power| 1 << power);
    powers.find(|pieces| terms.is_multiple_of(*pieces)).unwrap_or(0)
}

/// The place of the op that frees each allocation.
pub(super) fn deaths(ops: &[Op]) -> HashMap<usize, usize> {
    ops.iter().enumerate().filter_map(|(place, op)| op.freed().map(|id| (id, place))).collect()
}

/// The ops of each phase, the first one's from its beginning.
pub(super) fn phases(ops: &[Op]) -> impl Iterator<Item = &[Op]> {
    ops.chunk_by(|_, next| !matches!(next, Op::Enter(_)))
}

/// Allocations of a stretch that it does not free.
fn left(ops: &[Op]) -> Vec<usize> {
    let freed: HashSet<_> = ops.iter().filter_map(Op::freed).collect();
    ops.iter().filter_map(Op::allocated).filter(|id| !freed.contains(id)).collect()
}
