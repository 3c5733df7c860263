//! Memory that grows from step to step.
//!
//! A program that keeps part of every step, such as an unread loss with its graph, runs out of memory hours later. The
//! bytes in use after each step show it early. [`leak`] judges a series, [`LeakCheck`] one that goes on; diagnosis applies
//! the same rule.
//!
//! # The rule
//!
//! A leak is growth that is significant, lasting and material:
//!
//! * **Significant.** The first quarter is left out, since pools and the optimizer's state grow there. Of the rest, the
//!   slope of Theil and Sen is the median over all pairs of steps, so that a quarter of wild values does not move it. Its
//!   lower bound at 99% confidence, by Kendall's statistic, is positive: over all steps, and in each half.
//! * **Lasting.** The later half keeps at least 0.4 of the slope of the earlier half. A pool that fills up does not.
//! * **Material.** It added at least 1 MiB and would add 1 GiB in a million steps, a long run; or it would fill the memory
//!   that is left in a million steps.
//!
//! | 400 steps of | a leak? | why |
//! |---|---|---|
//! | 80 GiB + 100 kB a step | yes | adds 30 MB, and 100 GB in a long run |
//! | 100 MiB + 2 kB a step | no | adds 0.6 MB: less than 1 MiB |
//! | 100 MiB + 2 kB a step, with a limit of 1 GiB | yes | fills it in 0.5 million steps |

use serde::Serialize;

use crate::recording::{Record, belongs_to, last_run};

/// Memory that grows from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Leak {
    /// Growth in bytes per step.
    pub bytes_per_step: f64,
    /// Lower bound of the growth at 99% confidence, in bytes per step.
    pub at_least: f64,
    /// Upper bound of the growth at 99% confidence, in bytes per step.
    pub at_most: f64,
    /// The first step that was judged.
    pub from_step: u64,
    /// The last step that was judged.
    pub to_step: u64,
    /// In use after the last step, in bytes.
    pub in_use_bytes: u64,
}

/// Returns the leak of a series of steps and the bytes in use after them, in ascending order; `None` if there is none, or
/// if the series has fewer than 20 steps.
///
/// ```
/// use gpu_tuned_observe::leak::leak;
///
/// let steady: Vec<_> = (1..=200).map(|step| (step, 1_000_000_000 + step % 7 * 1_000_000)).collect();
/// assert!(leak(&steady).is_none());
///
/// let leaking: Vec<_> = steady.iter().map(|(step, bytes)| (*step, bytes + step * 2_000_000)).collect();
/// let leak = leak(&leaking).expect("it leaks");
/// assert!((leak.bytes_per_step - 2e6).abs() < 1e5);
/// ```
pub fn leak(series: &[(u64, u64)]) -> Option<Leak> {
    leak_within(series, None)
}

/// Returns the leak of a series as [`leak`] does, of a program that may use `limit_bytes` in all: growth that fills them
/// within a million steps is a leak, however small it is.
pub fn leak_within(series: &[(u64, u64)], limit_bytes: Option<u64>) -> Option<Leak> {
    let points: Vec<_> = series.iter().map(|(step, bytes)| (*step as f64, *bytes as f64)).collect();
    let in_use_bytes = series.last()?.1;
    let left = limit_bytes.map(|limit| limit.saturating_sub(in_use_bytes) as f64);
    let Growth { slope, first, last } = Growth::leak(&points, left)?;
    Some(Leak {
        bytes_per_step: slope.value,
        at_least: slope.at_least,
        at_most: slope.at_most,
        from_step: first.0 as u64,
        to_step: last.0 as u64,
        in_use_bytes,
    })
}

/// Returns the steps of a rank and the bytes in use after them, for the run of a recording that began last.
pub fn series(records: &[Record], rank: u64) -> Vec<(u64, u64)> {
    let run = last_run(records);
    let steps = records.iter().filter_map(Record::step).filter(|step| step.rank == rank && belongs_to(run, step));
    steps.filter_map(|step| Some((step.step, step.in_use_bytes?))).collect()
}

/// Steps that are kept at most.
const MAX_KEPT: usize = 2048;
/// Kept steps at the first judgement.
const FIRST: usize = 80;
/// Kept steps at a judgement over those at the one before.
const NEXT: f64 = 1.25;

/// Detects a leak while a program trains. Keeps at most 2048 steps, thinned out as they become more.
///
/// ```
/// use gpu_tuned_observe::leak::LeakCheck;
///
/// let mut check = LeakCheck::new();
/// let bytes = |step| 4_000_000_000 + 500_000 * step;
/// let found = (1..=400).find_map(|step| check.observe(step, bytes(step)));
/// assert_eq!(found.expect("it leaks").bytes_per_step.round(), 500_000.0);
/// ```
#[derive(Clone, Debug)]
pub struct LeakCheck {
    series: Vec<(u64, u64)>,
    limit_bytes: Option<u64>,
    /// One in so many steps is kept.
    every: u64,
    observed: u64,
    /// Kept steps at the next judgement.
    next: usize,
}

impl Default for LeakCheck {
    fn default() -> Self {
        Self { series: Vec::new(), limit_bytes: None, every: 1, observed: 0, next: FIRST }
    }
}

impl LeakCheck {
    /// Creates a check without observations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the bytes that the program may use in all: growth that fills them within a million steps is a leak, however
    /// small it is.
    #[must_use]
    pub fn limit(self, bytes: u64) -> Self {
        Self { limit_bytes: Some(bytes), ..self }
    }

    /// Adds the bytes in use after a step. Judges the series from time to time, first after 80 steps; returns `None` in
    /// between, and without a leak.
    pub fn observe(&mut self, step: u64, in_use_bytes: u64) -> Option<Leak> {
        let is_kept = self.observed.is_multiple_of(self.every);
        self.observed += 1;
        if !is_kept {
            return None;
        }
        self.series.push((step, in_use_bytes));
        let is_due = self.series.len() >= self.next;
        if is_due {
            self.next = (self.series.len() as f64 * NEXT) as usize;
        }
        if self.series.len() == MAX_KEPT {
            self.series = self.series.iter().copied().step_by(2).collect();
            self.every *= 2;
            self.next = (self.next / 2).max(MAX_KEPT / 2 + 1);
        }
        if is_due { self.judge() } else { None }
    }

    /// Judges the series as it is.
    pub fn judge(&self) -> Option<Leak> {
        leak_within(&self.series, self.limit_bytes)
    }
}

/// Points that a judgement needs: each half of the last three quarters then has 7, and 6 are the fewest whose slope can be
/// positive at 99% confidence.
const MIN_POINTS: usize = 20;
/// Points that are compared: every pair of points has a slope, and more points hardly narrow the bounds.
const MAX_POINTS: usize = 240;
/// The slope of the later half over that of the earlier one, at least: growth that fades is a pool that fills up.
const MIN_LASTING: f64 = 0.4;
/// Bytes that were added during the judged points, at least: 1 MiB. Less may be the bookkeeping of an allocator, or a
/// log that keeps a number of each step.
const MIN_GROWTH: f64 = (1 << 20) as f64;
/// Length of a long run, in steps or in seconds (11.6 days).
const LONG_RUN: f64 = 1e6;
/// Bytes that a long run adds, at least: 1 GiB, a part that matters of the memory of a small GPU.
const MIN_GROWTH_OF_LONG_RUN: f64 = (1 << 30) as f64;
/// Standard deviations of 99% confidence, both sides.
const DEVIATIONS: f64 = 2.576;

/// Growth that goes on, per step or per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    /// Bytes per unit, with the bounds of 99% confidence.
    pub slope: Slope,
    /// The first and the last judged point: unit and bytes.
    pub first: (f64, f64),
    pub last: (f64, f64),
}

impl Growth {
    /// Measures the growth of a series in ascending order; `None` if it is not significant or fades.
    pub(crate) fn measure(points: &[(f64, f64)]) -> Option<Self> {
        let settled = points.get(points.len() / 4..).filter(|_| points.len() >= MIN_POINTS)?;
        let (first, last) = (*settled.first()?, *settled.last()?);
        let compared: Vec<_> = settled.iter().copied().step_by(settled.len().div_ceil(MAX_POINTS)).collect();
        let (early, late) = compared.split_at(compared.len() / 2);
        let (whole, early, late) = (slope(&compared)?, slope(early)?, slope(late)?);
        let is_significant = [whole, early, late].iter().all(|slope| slope.at_least > 0.0);
        (is_significant && late.value >= MIN_LASTING * early.value).then_some(Self { slope: whole, first, last })
    }

    /// Measures the growth of a series, and returns it if it is a leak: if it is material as well.
    pub(crate) fn leak(points: &[(f64, f64)], bytes_left: Option<f64>) -> Option<Self> {
        let growth = Self::measure(points)?;
        let in_long_run = growth.slope.value * LONG_RUN;
        let is_large = growth.added() >= MIN_GROWTH && in_long_run >= MIN_GROWTH_OF_LONG_RUN;
        (is_large || bytes_left.is_some_and(|left| in_long_run >= left)).then_some(growth)
    }

    /// Bytes that were added from the first judged point to the last, along the slope.
    pub(crate) fn added(&self) -> f64 {
        self.slope.value * (self.last.0 - self.first.0)
    }
}

/// A slope with its bounds at 99% confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slope {
    pub value: f64,
    pub at_least: f64,
    pub at_most: f64,
}

/// Returns the slope of Theil and Sen: the median over all pairs of points, which come in ascending order; `None` without a pair.
fn slope(points: &[(f64, f64)]) -> Option<Slope> {
    let pairs = points.iter().enumerate().flat_map(|(index, a)| points[index + 1..].iter().map(move |b| (a, b)));
    let slopes = pairs.filter(|(a, b)| b.0 > a.0).map(|(a, b)| (b.1 - a.1) / (b.0 - a.0));
    let mut slopes: Vec<f64> = slopes.collect();
    slopes.sort_unstable_by(f64::total_cmp);
    let (count, points) = (slopes.len(), points.len() as f64);
    let last = count.checked_sub(1)?;
    // The variance of Kendall's statistic. Ties make the bounds wider than necessary.
    let deviation = (points * (points - 1.0) * (2.0 * points + 5.0) / 18.0).sqrt();
    let reach = DEVIATIONS * deviation;
    let below = ((count as f64 - reach) / 2.0).floor();
    let above = f64::midpoint(count as f64, reach).ceil();
    let bound = |index: f64, beyond: f64| {
        if index < 0.0 || index > last as f64 { beyond } else { slopes[index as usize] }
    };
    let value = f64::midpoint(slopes[last / 2], slopes[count / 2]);
    Some(Slope { value, at_least: bound(below, f64::NEG_INFINITY), at_most: bound(above, f64::INFINITY) })
}

#[cfg(test)]
mod tests {
    use super::{LeakCheck, MAX_KEPT, Slope, slope};

    #[test]
    fn a_long_run_is_judged_in_little_memory() {
        let mut check = LeakCheck::new();
        for step in 0..20_000 {
            assert!(check.observe(step, 900_000_000 + step * 2_654_435_761 % 10_000_000).is_none(), "{step}");
        }
        assert!(check.series.len() <= MAX_KEPT, "{}", check.series.len());
    }

    /// Expected values from `scipy.stats.theilslopes(y, x, alpha=0.99)`.
    #[test]
    fn slope_and_bounds_equal_those_of_scipy() {
        let y = [2.1, 3.9, 6.2, 7.8, 30.0, 12.1, 14.2, 15.8, 18.1, 20.2, 22.0, 23.9, 26.3, 27.8, 30.1, 32.2];
        let points: Vec<_> = y.iter().enumerate().map(|(index, y)| (index as f64, *y)).collect();
        let found = slope(&points).unwrap();
        let scipy = Slope { value: 2.0, at_least: 1.95, at_most: 2.0375 };
        assert!((found.value - scipy.value).abs() < 1e-12, "{found:?}");
        assert!((found.at_least - scipy.at_least).abs() < 1e-12, "{found:?}");
        assert!((found.at_most - scipy.at_most).abs() < 1e-12, "{found:?}");
    }
}
