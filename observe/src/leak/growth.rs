//! The rule that decides what growth is a leak.

use super::slope::{Slope, slope};

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
    ///
    /// The first quarter is left out: pools and the optimizer's state grow there. Of the rest, the slope's lower bound at
    /// 99% confidence has to be positive, in each half as well, and the later half has to keep at least 0.4 of the slope of
    /// the earlier one.
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
    ///
    /// Growth is material if it added 1 MiB and would add 1 GiB in a long run, or if it would fill the memory that is left
    /// in a long run. A long run has a million steps, or a million seconds.
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
