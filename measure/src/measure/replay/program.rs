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
    /// At the two micro-batches that were run, with values in four bytes and without padding.
    pub(super) bytes: [u64; 2],
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

/// Step to be repeated.
struct RepeatedStep {
    ops: Vec<Op>,
    /// Allocations that a step leaves to the next one, such as parameters: those of the step before, and of this step.
    survivors: Vec<(usize, usize)>,
    /// Allocations that this step or the next one frees.
    freed: HashSet<usize>,
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

    /// Repeats the last step, for `steps` in all; `None` for a program of fewer than three steps.
    pub(super) fn repeated(mut self, steps: usize) -> Option<Self> {
        let (done, step) = self.last_step()?;
        let mut current: Vec<_> = step.survivors.iter().map(|(_, later)| *later).collect();
        for _ in done..steps {
            current = self.append(&step, &current);
        }
        Some(self)
    }

    /// Cuts the program after its last step. Returns the number of steps, and the last one.
    fn last_step(&mut self) -> Option<(usize, RepeatedStep)> {
        let is_end = |(position, op): (usize, &Op)| (*op == Op::Enter(Phase::End)).then_some(position);
        let ends: Vec<_> = self.ops.iter().enumerate().filter_map(is_end).collect();
        let [.., before, second, last] = ends[..] else { return None };
        self.ops.truncate(last + 1);
        let ops = self.ops[second + 1..].to_vec();
        let survivors = self.matched(&left(&self.ops[before + 1..=second]), &left(&ops));
        let freed = ops.iter().filter_map(Op::freed).chain(survivors.iter().map(|(_, later)| *later)).collect();
        Some((ends.len(), RepeatedStep { ops, survivors, freed }))
    }

    /// Appends the step with new allocations. It frees `current`, the survivors of the step before. Returns its own survivors.
    fn append(&mut self, step: &RepeatedStep, current: &[usize]) -> Vec<usize> {
        let earlier = step.survivors.iter().map(|(earlier, _)| *earlier);
        let mut renamed: HashMap<_, _> = earlier.zip(current.iter().copied()).collect();
        for op in &step.ops {
            match *op {
                Op::Enter(_) => self.ops.push(*op),
                Op::Allocate(id) if step.freed.contains(&id) => {
                    self.made.push(self.made[id]);
                    let copy = self.add(self.sizes[id]);
                    renamed.insert(id, copy);
                    self.ops.push(Op::Allocate(copy));
                }
                // Skipped: without a free, its copies would accumulate.
                Op::Allocate(_) => {}
                Op::Free(id) => self.ops.extend(renamed.get(&id).copied().map(Op::Free)),
            }
        }
        step.survivors.iter().map(|(_, later)| renamed[later]).collect()
    }

    /// Pairs allocations of equal size, in order.
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
