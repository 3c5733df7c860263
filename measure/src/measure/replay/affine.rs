//! Aligning two recordings of the same steps: each allocation's size is a line over the micro-batch.

use gpu_tuned_train::allocation::SMALLEST_TENSOR_BYTES;
use std::collections::HashSet;

use super::program::{Allocation, Op, Program, Recorded, Size, deaths, phases};

/// Pairs in a row that end a stretch without pairs.
const RESUME: usize = 4;
/// Stretches without pairs are at most so long, in allocations.
const FURTHEST: usize = 200;
/// Largest part of bytes without a pair, in thousandths, apart from those that grow with the micro-batch and scratch. A
/// ResNet, convolutions and an LSTM have less than 1; a small transformer has 40 where its products change with the
/// size.
const MOST_UNPAIRED_PER_MILLE: u64 = 5;
/// Allocations freed within so many ops of their phase are scratch.
const BRIEF: usize = 64;
/// Allocations of this alignment are integers, or no tensors at all.
const INTEGER_ALIGN: u64 = 8;
/// Allocations of this alignment may be hash tables, in which autodiff keeps its graph.
const TABLE_ALIGN: u64 = 16;

/// The program of both recordings; `None` if they have different steps.
pub(super) fn aligned(small: &Recorded, large: &Recorded, batches: [u64; 2]) -> Option<Program> {
    let pairs = Pairs { small, large, batches }.all()?;
    let size = |(large, pair): (&Allocation, &Option<usize>)| {
        let bytes = match pair {
            Some(id) => [small.allocations[*id].bytes, large.bytes],
            // Too small to be recorded at the smaller micro-batch.
            None if large.bytes < 2 * SMALLEST_TENSOR_BYTES as u64 && large.align != INTEGER_ALIGN => {
                [large.bytes * batches[0] / batches[1], large.bytes]
            }
            None => [large.bytes; 2],
        };
        if large.align == INTEGER_ALIGN { Size::integers(bytes) } else { Size::plain(bytes) }
    };
    let sizes: Vec<_> = large.allocations.iter().zip(&pairs).map(size).collect();
    let deaths = deaths(&large.ops);
    let mut noise = HashSet::new();
    let [mut bytes, mut unpaired] = [0; 2];
    for (place, op) in large.ops.iter().enumerate() {
        let Op::Allocate(id) = *op else { continue };
        let made = large.allocations[id];
        // The scratch of a thread that happened to take more of the work; what a backward pass frees of a forward one is none.
        let is_brief = |death: &usize| *death < place + BRIEF && is_in_phase(&large.ops[place..*death]);
        let is_scratch = pairs[id].is_none() && deaths.get(&id).is_some_and(is_brief);
        if is_scratch || sizes[id].is_constant() && is_no_tensor(made) {
            noise.insert(id);
            continue;
        }
        bytes += made.bytes;
        unpaired += if pairs[id].is_none() && sizes[id].is_constant() { made.bytes } else { 0 };
    }
    let mut ops = large.ops.clone();
    ops.retain(|op| !op.is_of(&noise));
    let program = Program { ops, sizes, made: large.allocations.clone(), persistent: HashSet::new(), batches };
    (unpaired <= bytes / 1000 * MOST_UNPAIRED_PER_MILLE).then_some(program)
}

fn is_in_phase(ops: &[Op]) -> bool {
    !ops.iter().any(|op| matches!(op, Op::Enter(_)))
}

// Of what does not grow with the micro-batch.
fn is_no_tensor(Allocation { bytes, align, .. }: Allocation) -> bool {
    align == INTEGER_ALIGN || align == TABLE_ALIGN && is_table(bytes)
}

/// Returns true for the size of a standard hash table: a power of two of entries with one byte each besides, and 16
/// bytes more. Entries take a multiple of eight bytes.
fn is_table(bytes: u64) -> bool {
    let entries = bytes.saturating_sub(16);
    let odd = entries >> entries.trailing_zeros().min(63);
    entries.trailing_zeros() >= 3 && odd > 1 && odd % 8 == 1
}

struct Pairs<'r> {
    small: &'r Recorded,
    large: &'r Recorded,
    batches: [u64; 2],
}

impl Pairs<'_> {
    /// For each allocation of the larger run its partner of the smaller; `None` when they differ in phases.
    fn all(&self) -> Option<Vec<Option<usize>>> {
        let [small, large] = [self.small, self.large].map(|run| phases(&run.ops).collect::<Vec<_>>());
        let is_same = small.iter().map(|ops| ops.first()).eq(large.iter().map(|ops| ops.first()));
        let mut pairs = vec![None; self.large.allocations.len()];
        for (small, large) in small.into_iter().zip(large) {
            let [small, large] = [small, large].map(|ops| ops.iter().filter_map(Op::allocated).collect::<Vec<_>>());
            self.phase(&small, &large, &mut pairs);
        }
        is_same.then_some(pairs)
    }

    fn phase(&self, mut small: &[usize], mut large: &[usize], pairs: &mut [Option<usize>]) {
        while let ([first, small_rest @ ..], [second, large_rest @ ..]) = (small, large) {
            if self.fits(*first, *second) {
                pairs[*second] = Some(*first);
                (small, large) = (small_rest, large_rest);
            } else if let Some((skip, skip_large)) = self.resumption(small, large) {
                (small, large) = (&small[skip..], &large[skip_large..]);
            } else {
                return;
            }
        }
    }

    // The shortest way on: how many to leave out of either.
    fn resumption(&self, small: &[usize], large: &[usize]) -> Option<(usize, usize)> {
        let resumes = |&(skip, skip_large): &(usize, usize)| {
            let (Some(small), Some(large)) = (small.get(skip..), large.get(skip_large..)) else { return false };
            let count = RESUME.min(small.len()).min(large.len());
            count > 0 && small.iter().zip(large).take(count).all(|(small, large)| self.fits(*small, *large))
        };
        let mut ways = (1..FURTHEST).flat_map(|both| (0..=both).map(move |skip| (skip, both - skip)));
        ways.find(resumes)
    }

    // Not smaller at the larger micro-batch, and no more than in proportion larger.
    fn fits(&self, small: usize, large: usize) -> bool {
        let [small, large] = [self.small.allocations[small], self.large.allocations[large]];
        let [from, to] = self.batches;
        small.bytes <= large.bytes && large.bytes <= small.bytes * to / from
    }
}
