//! Which batches are measured, and which of them are worth keeping.
//!
//! Memory pools hold pages as large as the largest tensor, and as many as a step needs. Both follow from the micro-batch:
//! the pages grow with it in a straight line, their number falls in jumps. So what is reserved is a line up to a jump, and
//! another line from there on. A point that is kept stands at the beginning of such a piece, with its slope.

use crate::Bytes;

/// What was reserved at one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The micro-batch in samples.
    pub batch: u64,
    /// Memory that was reserved.
    pub reserved: Bytes,
}

/// A micro-batch to keep, and the line from it to the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// The micro-batch in samples.
    pub batch: u64,
    /// What each sample more adds.
    pub per_sample: Bytes,
    /// The most that was found above the line, as a share of what it says, where there is enough of it to matter; at least
    /// [`LEAST_RESIDUAL`].
    pub residual: f64,
}

/// What memory is never taken to be known better than: a program does a little more than steps.
pub const LEAST_RESIDUAL: f64 = 0.002;

/// Errors below this are as good as none, when there is a choice.
const TOLERATED: f64 = 0.005;

/// Where less is reserved, it does not matter how much: the smallest GPUs that train have eight times as much.
const MATTERS: Bytes = Bytes::from_mib(1024);

/// Two micro-batches nearer than this are not worth one between them, nor are pages that differ by as little in number.
const NEAR: f64 = 1.05;

/// The most batches that are tried.
const MOST_BATCHES: usize = 20;

/// Batches to try, ascending, from 1 to `largest`: 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on, and `largest`.
///
/// At most twenty: of more, those between the powers of two go first, from the smallest on.
pub fn ladder(largest: u64) -> Vec<u64> {
    let rungs = (0..u64::BITS - 1).flat_map(|power| [1 << power, 3 << power]);
    let mut batches: Vec<u64> = rungs.filter(|batch| *batch < largest).chain([largest.max(1)]).collect();
    batches.sort_unstable();
    while batches.len() > MOST_BATCHES {
        let inner = 1..batches.len() - 1;
        let between = inner.clone().find(|&at| !batches[at].is_power_of_two());
        batches.remove(between.unwrap_or(inner.start));
    }
    batches
}

/// The micro-batch to try next: in the middle of the two neighbours between which the number of pages seems to change most.
/// `None` where all such changes are known closely. `samples` are sorted by batch.
pub fn refined(samples: &[Sample]) -> Option<u64> {
    let change = |pair: &[Sample]| {
        let per_sample = |sample: &Sample| sample.reserved.0 as f64 / sample.batch as f64;
        (per_sample(&pair[0]) / per_sample(&pair[1])).ln().abs()
    };
    let is_wide = |pair: &&[Sample]| {
        let [from, to] = [pair[0].batch, pair[1].batch];
        to - from > 1 && to as f64 / from as f64 > NEAR && pair[1].reserved >= MATTERS
    };
    let wide = samples.windows(2).filter(is_wide).map(|pair| (change(pair), pair[0].batch.midpoint(pair[1].batch)));
    let (change, batch) = wide.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (change > NEAR.ln()).then_some(batch)
}

/// Keeps at most `most` micro-batches, so that the lines from them on err least; among choices that err little the ones
/// that lie evenly.
///
/// `run`, the largest micro-batch that is to be run, is kept unless memory is told better without it. `samples` are sorted by batch; `most` is at least 1.
pub fn select(samples: &[Sample], most: usize, run: Option<u64>) -> Vec<Piece> {
    let lines = Lines::of(samples);
    let is_left_out = |chosen: &[usize]| run.is_some_and(|run| chosen.iter().all(|at| samples[*at].batch != run));
    let mut best: Option<((f64, bool, f64), Vec<usize>)> = None;
    let mut chosen = Vec::with_capacity(most);
    each_choice(samples.len(), most, &mut chosen, &mut |chosen| {
        let worth = (lines.error(chosen).max(TOLERATED), is_left_out(chosen), widest(samples, chosen));
        if best.as_ref().is_none_or(|(least, _)| worth < *least) {
            best = Some((worth, chosen.to_vec()));
        }
    });
    best.map_or_else(Vec::new, |(_, chosen)| lines.pieces(&chosen))
}

/// The largest amount by which a sample lies above a line from the one before it to the one after it, as a share of what
/// the line says: what is known of lines between samples that are all kept. `None` for fewer than three.
pub fn left_out(samples: &[Sample]) -> Option<f64> {
    let above = |three: &[Sample]| {
        let [x, at, to] = [0, 1, 2].map(|index| three[index].batch as f64);
        let [from, found, end] = [0, 1, 2].map(|index| three[index].reserved.0 as f64);
        found / (from + (end - from) * (at - x) / (to - x)) - 1.0
    };
    samples.windows(3).map(above).reduce(f64::max).map(|above| above.max(LEAST_RESIDUAL))
}

/// Calls `each` with every ascending choice of 1 to `most` of the numbers below `count`.
fn each_choice(count: usize, most: usize, chosen: &mut Vec<usize>, each: &mut impl FnMut(&[usize])) {
    if chosen.len() == most {
        return;
    }
    for next in chosen.last().map_or(0, |last| last + 1)..count {
        chosen.push(next);
        each(chosen);
        each_choice(count, most, chosen, each);
        chosen.pop();
    }
}

/// The widest gap between neighbours that are kept, the smallest sample, and the largest, as a ratio.
fn widest(samples: &[Sample], chosen: &[usize]) -> f64 {
    let begins = [0].into_iter().chain(chosen.iter().copied());
    let ends = chosen.iter().copied().chain([samples.len() - 1]);
    let gaps = begins.zip(ends).map(|(from, to)| samples[to].batch as f64 / samples[from].batch as f64);
    gaps.fold(1.0, f64::max)
}

/// The best line from each sample up to each later one.
struct Lines<'s> {
    samples: &'s [Sample],
    /// By the sample at which the line begins, and the one before which it ends: its slope and the most harm it does.
    best: Vec<Vec<(f64, f64)>>,
}

impl<'s> Lines<'s> {
    fn of(samples: &'s [Sample]) -> Self {
        let from = |from: usize| (from + 1..=samples.len()).map(|to| line(&samples[from..to])).collect();
        Self { samples, best: (0..samples.len()).map(from).collect() }
    }

    fn line(&self, from: usize, to: usize) -> (f64, f64) {
        self.best[from][to - from - 1]
    }

    fn ends(&self, chosen: &[usize]) -> impl Iterator<Item = (usize, usize)> {
        chosen.iter().copied().zip(chosen.iter().copied().skip(1).chain([self.samples.len()]))
    }

    /// The largest error of the lines, and of taking the first point for all that is smaller.
    fn error(&self, chosen: &[usize]) -> f64 {
        let first = self.samples[chosen[0]].reserved.0 as f64;
        let below = self.samples[..chosen[0]].iter().map(|sample| harm(sample, first));
        let lines = self.ends(chosen).map(|(from, to)| self.line(from, to).1);
        below.chain(lines).fold(0.0, f64::max)
    }

    fn pieces(&self, chosen: &[usize]) -> Vec<Piece> {
        let piece = |(from, to)| {
            let (begin, slope) = (&self.samples[from], self.line(from, to).0);
            let above = self.samples[from..to].iter().map(|sample| {
                let said = on(begin, slope, sample).max(MATTERS.0 as f64);
                sample.reserved.0 as f64 / said - 1.0
            });
            let residual = above.fold(LEAST_RESIDUAL, f64::max);
            Piece { batch: begin.batch, per_sample: Bytes(slope.ceil() as u64), residual }
        };
        self.ends(chosen).map(piece).collect()
    }
}

/// The slope of a line from the first sample on that errs least at the others, and the most harm it does.
fn line(samples: &[Sample]) -> (f64, f64) {
    let (begin, others) = (&samples[0], &samples[1..]);
    let slope =
        |sample: &Sample| (sample.reserved.0 as f64 - begin.reserved.0 as f64) / (sample.batch - begin.batch) as f64;
    let worst =
        |slope: f64| others.iter().map(|sample| error(sample, on(begin, slope, sample)).abs()).fold(0.0, f64::max);
    // With no other sample, a micro-batch takes its multiple, which is rather too much.
    let Some(mut low) = others.iter().map(slope).reduce(f64::min) else {
        return (begin.reserved.0 as f64 / begin.batch as f64, 0.0);
    };
    let mut high = others.iter().map(slope).fold(low, f64::max);
    // The largest of several errors, each of which falls and rises in a straight line, falls and then rises.
    for _ in 0..60 {
        let third = (high - low) / 3.0;
        if worst(low + third) <= worst(high - third) { high -= third } else { low += third }
    }
    let slope = low.midpoint(high).max(0.0);
    (slope, others.iter().map(|sample| harm(sample, on(begin, slope, sample))).fold(0.0, f64::max))
}

fn on(begin: &Sample, slope: f64, sample: &Sample) -> f64 {
    begin.reserved.0 as f64 + slope * (sample.batch - begin.batch) as f64
}

/// How far off `said` is, as a share of what there is.
fn error(sample: &Sample, said: f64) -> f64 {
    let there = sample.reserved.0.max(1) as f64;
    (said - there) / there
}

/// The same, where it matters.
fn harm(sample: &Sample, said: f64) -> f64 {
    let there = sample.reserved.max(MATTERS).0 as f64;
    (said.max(MATTERS.0 as f64) - there).abs() / there
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
