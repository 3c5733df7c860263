//! Order of the micro-batches that are tried in a mode.
//!
//! The planner takes the smallest micro-batch within a tolerance of the best throughput, without checkpointing if it can.
//! The search therefore begins near the planned size, and goes up and down in steps of four. Then it fills the gaps around the
//! best size and below the smallest one within the tolerance. Sizes below and above serve plans with less memory, or more.

use std::collections::BTreeMap;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::{MOST_MICRO_BATCHES, Mode, micro_batches};

use super::super::bench::Tried;

/// Ratio of a try and the next larger or smaller one.
const STRIDE: u64 = 4;
/// Ratio of neighbours up to which no size between them is needed: throughput changes little from one to the other.
const CLOSE: f64 = 2.25;
/// Time of half a micro-batch over that of a whole one, above which launches dominate both.
const LAUNCH_BOUND: f64 = 0.9;

/// Use of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A plan on this device may take the size.
    Plan,
    /// A plan with less memory or more may take the size.
    Rest,
}

/// Bounds of the sizes, equal for all modes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) largest_batch: u64,
    /// Samples of a step on this rank; `None` for steps of one micro-batch.
    pub(super) global: Option<u64>,
    pub(super) planned: u64,
    pub(super) tolerance: f64,
    /// Bytes that executed steps may reserve.
    pub(super) most: Bytes,
}

/// Results of the first mode, to which the others are compared.
pub(super) struct First {
    /// Micro-batch with the best throughput, and that throughput in samples per millisecond.
    best: Option<(u64, f64)>,
    /// True if memory excludes larger micro-batches than the best.
    pub(super) is_limited: bool,
}

/// Tries of one mode.
pub(super) struct ModeTries {
    pub(super) mode: Mode,
    pub(super) tried: BTreeMap<u64, Tried>,
    /// Smallest micro-batch that does not fit.
    too_large: Option<u64>,
}

/// A micro-batch that was timed.
#[derive(Clone, Copy, Debug)]
struct Timed {
    batch: u64,
    micro_step_ms: f64,
    /// Samples per millisecond.
    rate: f64,
}

impl First {
    pub(super) fn new(tries: &ModeTries, limits: &Limits) -> Self {
        let timed = tries.timed(limits);
        let best = fastest(&timed);
        let is_limited = best.is_some_and(|best| {
            let is_largest = timed.last().is_some_and(|last| last.batch == best.batch);
            let none_is_larger = tries.candidates(limits).iter().all(|size| *size < best.batch);
            is_largest && none_is_larger && best.batch < limits.largest_batch
        });
        Self { best: best.map(|best| (best.batch, best.rate)), is_limited }
    }

    /// Least throughput with which another mode is planned: no size of the first one is within the tolerance.
    fn rival(&self, limits: &Limits) -> f64 {
        self.best.map_or(0.0, |(_, rate)| rate / (1.0 - limits.tolerance))
    }

    /// Returns true if another mode is too slow to be planned. It was timed at the best size, and only memory would make
    /// another size worth a try.
    fn beats(&self, timed: &[Timed], limits: &Limits) -> bool {
        !self.is_limited && timed.iter().all(|timed| timed.rate < self.rival(limits))
    }
}

impl ModeTries {
    pub(super) fn new(mode: Mode) -> Self {
        Self { mode, tried: BTreeMap::new(), too_large: None }
    }

    /// Excludes a micro-batch that does not fit, and all larger ones.
    pub(super) fn exclude(&mut self, batch: u64) {
        self.too_large = Some(self.too_large.map_or(batch, |known| known.min(batch)));
    }

    /// Largest micro-batch that is known to take as long as one of twice its size: launches dominate both.
    pub(super) fn launch_bound(&self) -> Option<u64> {
        let timed = || self.tried.values().filter_map(|tried| Some((tried.batch, tried.times?.micro_step_ms)));
        let is_bound = |(batch, ms): &(u64, f64)| {
            let twice = timed().find(|(larger, _)| *larger >= 2 * batch);
            twice.is_some_and(|(_, twice)| *ms >= LAUNCH_BOUND * twice)
        };
        timed().filter(is_bound).map(|(batch, _)| batch).max()
    }

    /// Returns the micro-batches to try next, the most useful first. `first` has the results of the first mode, for
    /// another one.
    pub(super) fn wanted(&self, need: Need, limits: &Limits, first: Option<&First>) -> Vec<u64> {
        if self.tried.len() >= MOST_MICRO_BATCHES {
            return Vec::new();
        }
        let timed = self.timed(limits);
        let candidates = self.candidates(limits);
        match (need, timed.as_slice()) {
            (Need::Plan, []) => self.begin(&candidates, limits, first).into_iter().collect(),
            (Need::Plan, timed) if first.is_some_and(|first| first.beats(timed, limits)) => Vec::new(),
            // The second size: a larger one, if one fits.
            (Need::Plan, [Timed { batch, .. }]) => {
                above(*batch, &candidates).or_else(|| below(*batch, &candidates)).into_iter().collect()
            }
            (Need::Plan, timed) => needed(timed, &candidates, limits, first),
            (Need::Rest, timed) => rest(timed, candidates, first.is_none()),
        }
    }

    /// Returns micro-batches that were timed, largest first: the one that would be planned, and smaller ones.
    pub(super) fn planned(&self, limits: &Limits) -> Vec<u64> {
        let timed = self.timed(limits);
        let least = fastest(&timed).map_or(0.0, |best| best.rate * (1.0 - limits.tolerance));
        let planned = timed.iter().position(|timed| timed.rate >= least);
        timed.iter().take(planned.map_or(0, |planned| planned + 1)).rev().map(|timed| timed.batch).collect()
    }

    fn begin(&self, candidates: &[u64], limits: &Limits, first: Option<&First>) -> Option<u64> {
        if !self.tried.is_empty() || self.too_large.is_some() {
            return candidates.first().copied();
        }
        // The description may be that of a smaller model, so a quarter of the planned size is tried first.
        let largest = match first {
            Some(first) => first.best.map_or(1, |(batch, _)| batch),
            None => limits.planned / STRIDE,
        };
        candidates.iter().rev().find(|size| **size <= largest).or(candidates.first()).copied()
    }

    /// Micro-batches that were timed, ascending, with their throughput in a step.
    fn timed(&self, limits: &Limits) -> Vec<Timed> {
        let timed = |tried: &Tried| {
            let times = tried.times?;
            let rate = rate(tried.batch, times.micro_step_ms, times.optimizer_ms, limits);
            Some(Timed { batch: tried.batch, micro_step_ms: times.micro_step_ms, rate })
        };
        self.tried.values().filter_map(timed).collect()
    }

    /// Sizes that were not tried and are expected to fit, ascending.
    fn candidates(&self, limits: &Limits) -> Vec<u64> {
        let Limits { largest_batch, global, most, .. } = *limits;
        let mut sizes = micro_batches(largest_batch, global);
        // Memory may limit sizes to a small part of the range, in which they lie closer together.
        let largest = self.tried.keys().next_back().copied();
        sizes.extend(largest.map(|largest| micro_batches(largest, global)).unwrap_or_default());
        sizes.sort_unstable();
        sizes.dedup();
        sizes.retain(|size| {
            let fits = self.too_large.is_none_or(|too_large| *size < too_large);
            fits && !self.tried.contains_key(size) && self.predicted(*size).is_none_or(|bytes| bytes <= most)
        });
        sizes
    }

    /// Bytes that a micro-batch will reserve: on the line through its neighbours, or through the two largest tries, or in
    /// proportion to a single one. `None` for smaller micro-batches than all tries.
    fn predicted(&self, batch: u64) -> Option<Bytes> {
        let bytes = |tried: &Tried| tried.reserved().unwrap_or_default().0 as f64;
        let mut smaller = self.tried.range(..batch).rev().map(|(_, tried)| tried);
        let low = smaller.next()?;
        let larger = self.tried.range(batch..).next().map(|(_, tried)| tried);
        let slope = match larger.or(smaller.next()) {
            Some(other) => (bytes(other) - bytes(low)) / (other.batch as f64 - low.batch as f64),
            None => bytes(low) / low.batch as f64,
        };
        Some(Bytes((bytes(low) + slope.max(0.0) * (batch - low.batch) as f64) as u64))
    }
}

/// Samples per millisecond of steps with a micro-batch.
pub(super) fn rate(batch: u64, micro_step_ms: f64, optimizer_ms: f64, limits: &Limits) -> f64 {
    let samples = limits.global.unwrap_or(batch) as f64;
    samples / (samples / batch as f64 * micro_step_ms + optimizer_ms)
}

fn fastest(timed: &[Timed]) -> Option<Timed> {
    timed.iter().copied().max_by(|a, b| a.rate.total_cmp(&b.rate))
}

/// The largest candidate up to four times a size.
fn above(batch: u64, candidates: &[u64]) -> Option<u64> {
    let near = |size: &&u64| **size > batch && **size <= STRIDE * batch;
    candidates.iter().rev().find(near).or_else(|| candidates.iter().find(|size| **size > batch)).copied()
}

/// The smallest candidate down to a quarter of a size.
fn below(batch: u64, candidates: &[u64]) -> Option<u64> {
    let near = |size: &&u64| **size < batch && STRIDE * **size >= batch;
    candidates.iter().find(near).or_else(|| candidates.iter().rev().find(|size| **size < batch)).copied()
}

/// The candidate nearest to the middle between two sizes that are far apart.
fn between(low: u64, high: u64, candidates: &[u64]) -> Option<u64> {
    if high as f64 <= CLOSE * low as f64 {
        return None;
    }
    let middle = (low as f64 * high as f64).sqrt();
    let inside = candidates.iter().copied().filter(|size| low < *size && *size < high);
    inside.min_by(|a, b| distance(*a as f64, middle).total_cmp(&distance(*b as f64, middle)))
}

/// Distance of two sizes in octaves.
fn distance(a: f64, b: f64) -> f64 {
    (a / b).log2().abs()
}

/// Sizes that a plan may take, given at least two that were timed.
fn needed(timed: &[Timed], candidates: &[u64], limits: &Limits, first: Option<&First>) -> Vec<u64> {
    let (Some(best), [bottom, .., top]) = (fastest(timed), timed) else { return Vec::new() };
    let rival = first.map_or(0.0, |first| first.rival(limits));
    let enough = rival.max(best.rate * (1.0 - limits.tolerance));
    let others = timed[..timed.len() - 1].iter().map(|timed| timed.rate).fold(0.0, f64::max);
    let growth = top.rate / others;
    // Growth fades from step to step, so half of the tolerance is all that further steps bring.
    let grows = growth > 1.0 + limits.tolerance / 2.0 && top.rate * growth >= enough;
    let mut sizes: Vec<u64> = above(top.batch, candidates).filter(|_| grows).into_iter().collect();
    let Some(planned) = timed.iter().find(|timed| timed.rate >= enough) else { return sizes };
    if planned.batch == bottom.batch {
        sizes.extend(below(bottom.batch, candidates));
    }
    // A micro-batch takes at least as long as a smaller one.
    let may_reach = |size: u64, low: &Timed, enough: f64| rate(size, low.micro_step_ms, 0.0, limits) >= enough;
    for pair in timed.windows(2) {
        let (low, high) = (pair[0], pair[1]);
        let is_beside_best = [low.batch, high.batch].contains(&best.batch);
        let enough = if high.batch == planned.batch { enough } else { best.rate };
        if high.batch == planned.batch || is_beside_best && low.batch >= planned.batch {
            sizes.extend(between(low.batch, high.batch, candidates).filter(|size| may_reach(*size, &low, enough)));
        }
    }
    sizes
}

/// All other sizes, the nearest to the fastest first. In the first mode a larger one leads if the largest is the fastest.
fn rest(timed: &[Timed], mut candidates: Vec<u64>, is_first: bool) -> Vec<u64> {
    let (Some(best), Some(top)) = (fastest(timed), timed.last()) else { return Vec::new() };
    let larger = above(top.batch, &candidates).filter(|_| is_first && top.batch == best.batch);
    let distance = |size: u64| distance(size as f64, best.batch as f64);
    candidates.sort_by(|a, b| distance(*a).total_cmp(&distance(*b)));
    larger.into_iter().chain(candidates).collect()
}
