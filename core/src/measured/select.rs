//! Which batches are measured, and which of them are worth keeping.
//!
//! Memory pools hold pages as large as the largest tensor, and as many as a step needs. Both follow from the micro-batch:
//! the pages grow with it in a straight line, their number falls in jumps. So what is reserved is a line up to a jump, and
//! another line from there on. A point that is kept stands anywhere in such a piece, with its slope and beginning: where its
//! time tells most.

mod laws;
mod lines;
mod times;

use std::collections::BTreeMap;

use super::{InPages, Pages};
use crate::Bytes;
use laws::Laws;
use lines::Lines;
use times::Times;

/// What is known of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The micro-batch in samples.
    pub batch: u64,
    /// Memory that was reserved.
    pub reserved: Bytes,
    /// What of it was in use after the forward pass, where that is known: what grows with the micro-batch in a straight line.
    pub in_use: Option<Bytes>,
    /// The pages it was in, where these were counted.
    pub held: Option<InPages>,
    /// How long steps took, where they were run.
    pub seconds: Option<Seconds>,
}

/// How long the parts of an optimizer step take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seconds {
    /// Seconds of the forward and backward pass of one micro-batch.
    pub micro_step: f64,
    /// Seconds of the optimizer.
    pub optimizer: f64,
}

/// A micro-batch to keep, and the line through it up to the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// The micro-batch in samples.
    pub batch: u64,
    /// The first micro-batch that the line tells of; at most `batch`.
    pub from: u64,
    /// What each sample more adds.
    pub per_sample: Bytes,
    /// The most that was found above the line, or that may lie above it where the number of pages changes between samples, as
    /// a share of what it says, or of [`MATTERS`] where it says less; at least [`LEAST_RESIDUAL`].
    pub residual: f64,
}

/// What is worth keeping.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selected {
    /// Micro-batches, ascending.
    pub batches: Vec<u64>,
    /// The line through each of them, unless pages tell more than lines.
    pub pieces: Vec<Piece>,
    /// What pages tell from a micro-batch on.
    pub pages: BTreeMap<u64, Pages>,
}

/// Bytes that have nothing to do with the micro-batch: weights and the optimizer's state.
#[derive(Clone, Copy, Debug)]
struct Constant {
    reserved: f64,
    in_use: f64,
}

impl Constant {
    /// What is in use, by the first and the last sample that tell; what is reserved, by the first, of which at most twice as
    /// much has to do with its micro-batch as the last one says.
    fn of(samples: &[Sample]) -> Self {
        let known = |sample: &Sample| Some((sample.batch as f64, sample.reserved.0 as f64, sample.in_use?.0 as f64));
        let mut known = samples.iter().filter_map(known);
        let (Some((few, reserved, least)), Some((many, in_pages, most))) = (known.next(), known.next_back()) else {
            return Self { reserved: 0.0, in_use: 0.0 };
        };
        let grows = (most - least) / (many - few);
        let in_use = (least - few * grows).max(0.0);
        let times = (in_pages - in_use) / (most - in_use).max(1.0);
        Self { reserved: (reserved - 2.0 * times * few * grows).max(in_use), in_use }
    }
}

impl Sample {
    /// How many times what is in use is reserved, as far as either grows: the same as long as the number of pages is. `None`
    /// where it is not known.
    fn times_in_use(&self, constant: Constant) -> Option<f64> {
        let reserved = self.reserved.0 as f64 - constant.reserved;
        let in_use = self.in_use?.0 as f64 - constant.in_use;
        (reserved > 0.0 && in_use > 0.0).then(|| reserved / in_use)
    }
}

/// What memory is never taken to be known better than: a program does a little more than steps.
pub const LEAST_RESIDUAL: f64 = 0.002;

/// Errors that differ by less than this are as good as each other, when there is a choice.
const TOLERATED: f64 = 0.005;

/// Where less is reserved, errors count less: the smallest GPUs that train have eight times as much.
pub const MATTERS: Bytes = Bytes::from_mib(1024);

/// Two micro-batches nearer than this are not worth one between them.
const NEAR: f64 = 1.05;

/// Two micro-batches farther apart than this tell nothing of what is between them.
const APART: f64 = 2.5;

/// Nor are those between which what is reserved changes by less than this, beside what is in use.
const ALIKE: f64 = 1.02;

/// What a change counts at least where less than [`MATTERS`] is reserved, beside one where it is more.
const SLIGHT: f64 = 0.3;

/// Twice the micro-batch of which nothing is known is worth as much as a change by 7%: pages may have gone and come again. With
/// these figures lines erred least, or nearly so, of those that were tried on replayed steps of three networks.
const UNSEEN: f64 = 0.1;

/// Batches to try between others are multiples of this.
const EVEN: u64 = 4;

/// Where pages may be another number only by so little of what is held, no try is worth it.
const OPEN: f64 = 0.002;

/// From so many samples on.
const FEW: u64 = 16;

/// The most batches that are tried.
const MOST_BATCHES: usize = 20;

/// Of more samples than these not every choice is looked at.
const MOST_SAMPLES: usize = 24;

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

/// The micro-batch to try next, up to the last that reserves at most `most`. `None` where all is known closely. `samples` are
/// sorted by batch.
///
/// Where pages were counted: where small allocations seem to outgrow the pages of their own; else between the neighbours that
/// are farthest apart, if they are far; else where a count tells most of what is needed. Elsewhere in the middle of the two neighbours between which the number of pages seems to change most, or
/// between which nothing is known for longest. Only what `is_worth` says is tried.
pub fn refined(samples: &[Sample], most: Bytes, is_worth: impl Fn(u64) -> bool) -> Option<u64> {
    let last = samples.iter().rposition(|sample| sample.reserved <= most)?;
    let samples = &samples[..=last];
    if samples.iter().all(|sample| sample.held.is_some()) {
        let undecided = || Laws::of(samples)?.undecided(FEW, EVEN, &is_worth).filter(|(open, _)| *open > OPEN);
        return outgrown(samples, &is_worth)
            .or_else(|| farthest(samples, APART, &is_worth))
            .or_else(|| Some(undecided()?.1))
            .or_else(|| farthest(samples, NEAR, &is_worth));
    }
    let constant = Constant::of(samples);
    let is_wide = |pair: &&[Sample]| pair[1].batch - pair[0].batch > 1 && ratio(pair) > NEAR;
    let unseen = |pair: &[Sample]| if pair[0].batch < FEW { 0.0 } else { UNSEEN * ratio(pair).ln() };
    let worth = |pair: &[Sample]| change(pair, constant).max(unseen(pair));
    let wide = samples.windows(2).filter(is_wide).map(|pair| (worth(pair), pair[0].batch.midpoint(pair[1].batch)));
    let (worth, batch) = wide.filter(|(_, batch)| is_worth(*batch)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (worth > ALIKE.ln()).then_some(batch)
}

/// Where pages of small allocations go because these have become large: from there on as much is needed of other pages.
fn outgrown(samples: &[Sample], is_worth: impl Fn(u64) -> bool) -> Option<u64> {
    let gone = |pair: &[Sample]| {
        let [from, to] = [pair[0].held?, pair[1].held?].map(|held| held.small_bytes().0);
        let share = from.saturating_sub(to) as f64 / pair[0].reserved.0 as f64;
        let (batch, end) = (pair[0].batch, pair[1].batch);
        // Rows are mostly as wide as powers of two, and are too large then right after one.
        let power = 1 << (end - 1).ilog2();
        let next = if power >= batch { [power, power + 1] } else { [batch.midpoint(end); 2] };
        let next = next.into_iter().find(|next| batch < *next && *next < end && is_worth(*next))?;
        let is_open = power >= batch || ratio(pair) > NEAR;
        (is_open && share > ALIKE - 1.0).then_some((share, next))
    };
    let (_, batch) = samples.windows(2).filter_map(gone).max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(batch)
}

/// Between the two neighbours that are farthest apart, as a ratio, and by more than that; fewer than [`FEW`] samples count as so many.
fn farthest(samples: &[Sample], apart: f64, is_worth: impl Fn(u64) -> bool) -> Option<u64> {
    let ratio = |from: u64, to: u64| to as f64 / from as f64;
    let pairs = samples.windows(2).map(|pair| (pair[0].batch.max(FEW), pair[1].batch));
    let wide = pairs.filter(|(from, to)| *to > from + 1 && ratio(*from, *to) > apart);
    let between = wide.map(|(from, to)| {
        let middle = (from as f64 * to as f64).sqrt().round() as u64;
        // Kernels for odd batches are others.
        let even = (middle + EVEN / 2) / EVEN * EVEN;
        let batch = if from < even && even < to { even } else { middle.clamp(from + 1, to - 1) };
        (ratio(from, to), batch)
    });
    let (_, batch) = between.filter(|(_, batch)| is_worth(*batch)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(batch)
}

fn ratio(pair: &[Sample]) -> f64 {
    pair[1].batch as f64 / pair[0].batch as f64
}

/// By how much the number of pages seems to change between neighbours, as a logarithm, less where it matters less.
fn change(pair: &[Sample], constant: Constant) -> f64 {
    let reserved = pair[1].reserved.0 as f64;
    if let [Some(before), Some(after)] = [pair[0].times_in_use(constant), pair[1].times_in_use(constant)] {
        return (before / after).ln().abs() * (reserved / MATTERS.0 as f64).clamp(SLIGHT, 1.0);
    }
    // Weights, which pages do not grow with, are much of what small micro-batches take.
    let per_sample = |sample: &Sample| sample.reserved.0 as f64 / sample.batch as f64;
    if pair[1].reserved < MATTERS { 0.0 } else { (per_sample(&pair[0]) / per_sample(&pair[1])).ln().abs() }
}

/// Keeps at most `most` micro-batches, each with a line for what is reserved around it.
///
/// First of all the lines are to err little: half a percent more than the least is as good. Then the times that are kept
/// are to be those that plans need: the smallest micro-batch that is within 2% of the fastest, by the time of a step of
/// `global` samples (without it, of one micro-batch), the fastest, one below which all are much slower, and others so
/// that lines between times err least where steps were timed. Then they are to lie evenly. `samples` are sorted by batch;
/// `most` is at least 1.
pub fn select(samples: &[Sample], most: usize, global: Option<u64>) -> Selected {
    paged(samples, most, global).unwrap_or_else(|| lined(samples, most, global))
}

/// The same by lines.
fn lined(samples: &[Sample], most: usize, global: Option<u64>) -> Selected {
    let few = thinned(samples);
    let (lines, times) = (Lines::of(&few), Times::of(&few, global));
    let mut harms = Vec::new();
    each_choice(few.len(), most, &mut Vec::new(), &mut |chosen| harms.push(lines.least_harm(chosen).harm));
    let tolerated = harms.iter().copied().fold(f64::INFINITY, f64::min) + TOLERATED;
    let mut best: Option<(_, Vec<u64>)> = None;
    let mut harms = harms.into_iter();
    each_choice(few.len(), most, &mut Vec::new(), &mut |chosen| {
        if harms.next().is_none_or(|harm| harm > tolerated) {
            return;
        }
        let against = times.as_ref().map(|times| times.against(chosen));
        let worth = (against, widest(&few, chosen));
        if best.as_ref().is_none_or(|(least, _)| worth < *least) {
            best = Some((worth, chosen.iter().map(|at| few[*at].batch).collect()));
        }
    });
    let kept = best.map_or_else(Vec::new, |(_, kept)| kept);
    let is_kept = |sample: &Sample| kept.contains(&sample.batch);
    let chosen: Vec<usize> = (0..samples.len()).filter(|at| is_kept(&samples[*at])).collect();
    let pieces = if chosen.is_empty() { Vec::new() } else { Lines::through(samples, is_kept).pieces(&chosen) };
    Selected { batches: kept, pieces, pages: BTreeMap::new() }
}

/// The same where few laws tell of all pages that were counted: then no choice errs less than another.
fn paged(samples: &[Sample], most: usize, global: Option<u64>) -> Option<Selected> {
    let laws = Laws::of(samples).filter(|laws| laws.count() <= most)?;
    let times = Times::of(samples, global);
    let mut best: Option<(_, Vec<usize>)> = None;
    each_choice(samples.len(), most, &mut Vec::new(), &mut |chosen| {
        let worth = (times.as_ref().map(|times| times.against(chosen)), widest(samples, chosen));
        if best.as_ref().is_none_or(|(least, _)| worth < *least) {
            best = Some((worth, chosen.to_vec()));
        }
    });
    let batches = best?.1.into_iter().map(|at| samples[at].batch).collect();
    Some(Selected { batches, pieces: Vec::new(), pages: laws.pages() })
}

/// The most by which micro-batches that were timed and are not kept took longer than lines between the times that are kept
/// say, as a share of the time; only where a plan may go, or would be led to by the lines: to no less than 80% of the highest
/// speed. `None` where nothing was timed there. `samples` are sorted by batch; steps are of `global` samples, or of one
/// micro-batch.
pub fn time_residual(samples: &[Sample], kept: &[u64], global: Option<u64>) -> Option<f64> {
    Times::of(samples, global)?.residual(kept)
}

/// At most so many samples that every choice of them can be looked at, without those that neighbours tell of.
fn thinned(samples: &[Sample]) -> Vec<Sample> {
    let mut few = samples.to_vec();
    while few.len() > MOST_SAMPLES {
        let told = |at: &usize| (off_line(&few[at - 1..at + 2]).abs(), *at);
        let untimed = (1..few.len() - 1).filter(|at| few[*at].seconds.is_none());
        let least = untimed.map(|at| told(&at)).min_by(|a, b| a.0.total_cmp(&b.0));
        few.remove(least.map_or(1, |(_, at)| at));
    }
    few
}

/// How far the second of three samples lies above a line through the others, as a share of what the line says.
fn off_line(three: &[Sample]) -> f64 {
    let [x, at, to] = [0, 1, 2].map(|index| three[index].batch as f64);
    let [from, found, end] = [0, 1, 2].map(|index| three[index].reserved.0 as f64);
    found / (from + (end - from) * (at - x) / (to - x)) - 1.0
}

/// The largest amount by which a sample lies above a line from the one before it to the one after it, as a share of what
/// the line says: what is known of lines between samples that are all kept. `None` for fewer than three.
pub fn left_out(samples: &[Sample]) -> Option<f64> {
    samples.windows(3).map(off_line).reduce(f64::max).map(|above| above.max(LEAST_RESIDUAL))
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

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
