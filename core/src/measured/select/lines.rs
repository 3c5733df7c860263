//! Lines through what was reserved at some micro-batches, and where each begins.

use super::{Constant, LEAST_RESIDUAL, MATTERS, Piece, Sample};
use crate::Bytes;

/// How much an error counts where it does not matter, beside one that does.
const SLIGHTLY: f64 = 0.5;

/// Where less than this is reserved, an error is a share of this.
const LEAST: Bytes = Bytes::from_mib(64);

/// More times a micro-batch than this is far from it: those between were left out.
const FAR: f64 = 4.0;

/// The best lines through samples, by the sample that a line passes, the first that it tells of and the one before which it
/// ends.
pub(super) struct Lines<'s> {
    samples: &'s [Sample],
    /// None of a sample that is not to be kept.
    fits: Vec<Vec<Vec<Fit>>>,
}

/// A line.
#[derive(Clone, Copy)]
struct Fit {
    slope: f64,
    /// The most harm that it does where it is told of.
    harm: f64,
    /// The most harm of taking its beginning for all that is smaller.
    below: f64,
}

/// Samples to keep, and the one at which the line of each begins.
pub(super) struct Laid {
    /// The most harm of any line.
    pub harm: f64,
    begins: Vec<usize>,
}

impl<'s> Lines<'s> {
    /// Of lines through any of the samples.
    pub(super) fn of(samples: &'s [Sample]) -> Self {
        Self::through(samples, |_| true)
    }

    /// Of lines through those that pass.
    pub(super) fn through(samples: &'s [Sample], passes: impl Fn(&Sample) -> bool) -> Self {
        let count = samples.len();
        let through = |at: usize| {
            let from = |from: usize| (at + 1..=count).map(|to| Fit::of(samples, at, from, to)).collect();
            if passes(&samples[at]) { (0..=at).map(from).collect() } else { Vec::new() }
        };
        Self { samples, fits: (0..count).map(through).collect() }
    }

    fn fit(&self, at: usize, from: usize, to: usize) -> Fit {
        self.fits[at][from][to - at - 1]
    }

    /// The beginnings with which lines through the chosen samples do the least harm.
    pub(super) fn least_harm(&self, chosen: &[usize]) -> Laid {
        self.laid(chosen, |fit, is_first| if is_first { fit.harm.max(fit.below) } else { fit.harm }, f64::max)
    }

    /// Of all beginnings with which no line does more than `harm`, the ones with which all of them together err least.
    fn least_cost(&self, chosen: &[usize], harm: f64) -> Laid {
        let cost = |fit: Fit, is_first: bool| {
            let below = if is_first { fit.below } else { 0.0 };
            if fit.harm.max(below) > harm { f64::INFINITY } else { fit.harm + below }
        };
        self.laid(chosen, cost, |a, b| a + b)
    }

    /// The beginnings of lines through the chosen samples with the least cost, where costs are joined from line to line.
    fn laid(&self, chosen: &[usize], cost: impl Fn(Fit, bool) -> f64, join: fn(f64, f64) -> f64) -> Laid {
        // By the sample before which all lines so far end: their cost and where the last of them begins.
        let mut ends: Vec<Vec<(f64, usize)>> = Vec::with_capacity(chosen.len());
        for (number, &at) in chosen.iter().enumerate() {
            let before = number.checked_sub(1).map(|before| (&ends[before], chosen[before] + 1));
            let first = before.map_or(0, |(_, first)| first);
            let last = chosen.get(number + 1).copied().unwrap_or(self.samples.len());
            let to_end = if number + 1 == chosen.len() { last } else { at + 1 };
            let until = |to: usize| {
                let begun = |from: usize| {
                    let own = cost(self.fit(at, from, to), before.is_none());
                    (before.map_or(own, |(ends, first)| join(ends[from - first].0, own)), from)
                };
                (first..=at).map(begun).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, at))
            };
            let found = (to_end..=last).map(until).collect();
            ends.push(found);
        }
        let mut begins = Vec::with_capacity(chosen.len());
        let harm = ends.last().map_or(0.0, |all| all[0].0);
        let mut to = self.samples.len();
        for (number, all) in ends.iter().enumerate().rev() {
            let first = if number + 1 == chosen.len() { to } else { chosen[number] + 1 };
            to = all[to - first].1;
            begins.push(to);
        }
        begins.reverse();
        Laid { harm, begins }
    }

    /// The lines through the chosen samples.
    pub(super) fn pieces(&self, chosen: &[usize]) -> Vec<Piece> {
        let least = self.least_harm(chosen).harm;
        let Laid { begins, .. } = self.least_cost(chosen, least);
        let ends = begins.iter().copied().skip(1).chain([self.samples.len()]);
        let lines = chosen.iter().zip(&begins).zip(ends).enumerate();
        lines.map(|(number, ((at, from), to))| self.piece(*at, *from, to, number == 0)).collect()
    }

    /// The line through a sample, from one to before another; the first says what it begins with of all that is smaller.
    fn piece(&self, at: usize, from: usize, to: usize, is_first: bool) -> Piece {
        let (kept, begin) = (&self.samples[at], &self.samples[from]);
        let slope = self.fit(at, from, to).slope.ceil();
        let said = |sample: &Sample| on(kept, slope, if sample.batch < begin.batch { begin } else { sample });
        let first = if is_first { 0 } else { from };
        let above = self.samples[first..to].iter().map(|sample| above(sample.reserved.0 as f64, said(sample)));
        let constant = Constant::of(self.samples);
        let up_to_the_next = &self.samples[first..self.samples.len().min(to + 1)];
        let between = up_to_the_next.windows(2).map(|pair| unknown(pair, constant, said));
        let residual = above.chain(between).fold(LEAST_RESIDUAL, f64::max);
        Piece { batch: kept.batch, from: begin.batch, per_sample: Bytes(slope as u64), residual }
    }
}

impl Fit {
    /// The line through a sample that errs least at those from one to before another. It leads on to that other one where it
    /// has no second sample, or where the last of them is far from it.
    fn of(samples: &[Sample], at: usize, from: usize, to: usize) -> Self {
        let (kept, part) = (&samples[at], &samples[from..to]);
        let is_far = |next: &Sample| next.batch as f64 > FAR * samples[to - 1].batch as f64;
        let leads_on = samples.get(to).is_some_and(|next| part.len() == 1 || is_far(next));
        let led = &samples[from..to + usize::from(leads_on)];
        let worst = |part: &[Sample], said: &dyn Fn(&Sample) -> f64| {
            part.iter().map(|sample| harm(sample, said(sample))).fold(0.0, f64::max)
        };
        let along = |part: &[Sample], slope: f64| worst(part, &|sample| on(kept, slope, sample));
        let slope = best_slope(kept, led, |slope| along(led, slope));
        let begin = on(kept, slope, &samples[from]);
        Self { slope, harm: along(part, slope), below: worst(&samples[..from], &|_| begin) }
    }
}

/// The slope with the least cost, which falls and then rises with it; 0 rather than less.
fn best_slope(kept: &Sample, part: &[Sample], cost: impl Fn(f64) -> f64) -> f64 {
    let others = part.iter().filter(|sample| sample.batch != kept.batch);
    let slopes = others
        .map(|sample| (sample.reserved.0 as f64 - kept.reserved.0 as f64) / (sample.batch as f64 - kept.batch as f64));
    let ends = slopes.fold(None, |ends: Option<(f64, f64)>, slope| {
        Some(ends.map_or((slope, slope), |(low, high)| (low.min(slope), high.max(slope))))
    });
    // With no other sample, a micro-batch takes its multiple, which is rather too much.
    let Some((low, high)) = ends else { return kept.reserved.0 as f64 / kept.batch as f64 };
    lowest(low.max(0.0), high.max(0.0), cost)
}

fn on(kept: &Sample, slope: f64, sample: &Sample) -> f64 {
    kept.reserved.0 as f64 + slope * (sample.batch as f64 - kept.batch as f64)
}

/// How far something lies above what is `said`, as a share of that or of what matters.
fn above(there: f64, said: f64) -> f64 {
    (there - said) / said.max(MATTERS.0 as f64)
}

/// The most that may lie above what is `said` between two neighbours: nobody knows where the number of pages changes, so it
/// may be the larger of the two from one to the other.
fn unknown(pair: &[Sample], constant: Constant, said: impl Fn(&Sample) -> f64) -> f64 {
    let [from, to] = pair else { return 0.0 };
    let [Some(before), Some(after)] = [from, to].map(|sample| sample.times_in_use(constant)) else { return 0.0 };
    if to.batch - from.batch < 2 {
        return 0.0;
    }
    let most = |sample: &Sample, own: f64| {
        constant.reserved + (sample.reserved.0 as f64 - constant.reserved) * before.max(after) / own
    };
    let (most, said) = ([most(from, before), most(to, after)], [said(from), said(to)]);
    let at = |[from, to]: [f64; 2], way: f64| from + (to - from) * way;
    // Both are straight lines: the share is largest at an end, or where it begins to be one of what is said.
    let matters = ((MATTERS.0 as f64 - said[0]) / (said[1] - said[0])).clamp(0.0, 1.0);
    let ways = [0.0, matters, 1.0].into_iter().filter(|way| way.is_finite());
    ways.map(|way| above(at(most, way), at(said, way))).fold(0.0, f64::max)
}

/// How far off `said` is, as a share of what there is: less where it does not matter, unless it is taken for what does.
fn harm(sample: &Sample, said: f64) -> f64 {
    let (there, matters) = (sample.reserved.0 as f64, MATTERS.0 as f64);
    let off = (said - there).abs() / there.max(LEAST.0 as f64);
    if there < matters { (SLIGHTLY * off).max(said / matters - 1.0) } else { off }
}

/// Where a figure that falls and then rises is the lowest, to one.
fn lowest(mut low: f64, mut high: f64, figure: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..40 {
        if high - low < 1.0 {
            break;
        }
        let third = (high - low) / 3.0;
        if figure(low + third) <= figure(high - third) { high -= third } else { low += third }
    }
    low.midpoint(high)
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
