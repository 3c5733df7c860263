//! Memory that grows from step to step.
//!
//! A program that keeps something of every step, such as a loss that was not read and holds its graph, runs out of memory
//! hours later. The bytes in use after each step tell it early, though they are noisy: pools grow in the first steps,
//! batches differ in size, a validation comes in between. [`leak`] judges a series, [`LeakCheck`] one that goes on.
//!
//! What is looked at are the last three quarters of a series, since memory that is taken once is no leak. Its slope is
//! that of Theil and Sen, the median over all pairs of steps, which a quarter of wild values does not move, with the bounds
//! that it has at 99% confidence by Kendall's statistic. A leak is growth that is certainly there, in each half by itself
//! as well, and does not fade: what fills up and stays full is a pool.

mod slope;

use crate::recording::Record;
use serde::Serialize;

use crate::recording::{is_of, last_run};
use slope::{Slope, slope};

/// Steps of a series that can be judged.
const LEAST: usize = 40;
/// Points that are looked at: pairs of them are all compared.
const MOST: usize = 240;
/// Growth over what was looked at that is worth telling, as a share of what is in use.
const LEAST_GROWTH: f64 = 1e-3;
/// The slope of the second half is at least this share of that of the first, where growth does not fade.
const LASTING: f64 = 0.4;

/// Memory that grows from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Leak {
    /// By so many bytes a step.
    pub bytes_per_step: f64,
    /// By so many at least, with 99% confidence.
    pub at_least: f64,
    /// By so many at most, with 99% confidence.
    pub at_most: f64,
    /// The first step that was looked at.
    pub from_step: u64,
    /// The last step that was looked at.
    pub to_step: u64,
    /// In use in the end, in bytes.
    pub in_use_bytes: u64,
}

impl Leak {
    /// After how many further steps so many bytes more are taken.
    pub fn steps_until(&self, bytes_more: u64) -> u64 {
        (bytes_more as f64 / self.bytes_per_step) as u64
    }
}

/// The leak of a series of steps and the bytes in use after them, in order; `None` where there is none, or the series is
/// too short to tell: fewer than 40 steps.
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
    // The first quarter is where pools and the optimizer's state come from.
    let settled = series.get(series.len() / 4..).filter(|_| series.len() >= LEAST)?;
    let points = thinned(settled);
    let (first, last) = (*points.first()?, *points.last()?);
    let Slope { value, at_least, at_most } = slope(&points)?;
    let growth = value * (last.0 - first.0);
    let (early, late) = points.split_at(points.len() / 2);
    let (early, late) = (slope(early)?, slope(late)?);
    let is_lasting = early.at_least > 0.0 && late.at_least > 0.0 && late.value >= LASTING * early.value;
    let is_leak = at_least > 0.0 && is_lasting && growth >= LEAST_GROWTH * last.1.max(1.0);
    is_leak.then(|| Leak {
        bytes_per_step: value,
        at_least,
        at_most,
        from_step: settled.first().map_or(0, |point| point.0),
        to_step: settled.last().map_or(0, |point| point.0),
        in_use_bytes: settled.last().map_or(0, |point| point.1),
    })
}

/// The series of a recording: steps of rank `rank` and the bytes in use after them, of the run that began last.
pub fn series(records: &[Record], rank: u64) -> Vec<(u64, u64)> {
    let run = last_run(records);
    let of_rank = records.iter().filter_map(|record| match record {
        Record::Step(step) if step.rank == rank && is_of(run, step) => Some((step.step, step.in_use_bytes?)),
        _ => None,
    });
    of_rank.collect()
}

/// No more points than can be compared, evenly taken.
fn thinned(series: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let every = series.len().div_ceil(MOST);
    series.iter().step_by(every).map(|(step, bytes)| (*step as f64, *bytes as f64)).collect()
}

/// Looks for a leak while a program trains. Keeps some thousand steps, thinned out as they become more.
///
/// ```
/// use gpu_tuned_observe::leak::LeakCheck;
///
/// let mut check = LeakCheck::new();
/// let bytes = |step| 4_000_000_000 + 500_000 * step;
/// let found = (1..=400).find_map(|step| check.observe(step, bytes(step)));
/// assert_eq!(found.expect("it leaks").bytes_per_step.round(), 500_000.0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct LeakCheck {
    series: Vec<(u64, u64)>,
    /// Of so many steps one is kept.
    every: u64,
    seen: u64,
    /// Points at which it is judged next.
    next: usize,
}

/// Points that are kept.
const KEPT: usize = 2048;
/// From one judgement to the next, as a factor of points.
const NEXT: f64 = 1.25;

impl LeakCheck {
    /// Nothing was seen yet.
    pub fn new() -> Self {
        Self { every: 1, next: LEAST * 2, ..Self::default() }
    }

    /// Takes the bytes in use after a step. Judges what was seen from time to time, the first time after 80 steps; `None`
    /// in between, and where there is no leak.
    pub fn observe(&mut self, step: u64, in_use_bytes: u64) -> Option<Leak> {
        let is_kept = self.seen.is_multiple_of(self.every.max(1));
        self.seen += 1;
        if !is_kept {
            return None;
        }
        self.series.push((step, in_use_bytes));
        let is_due = self.series.len() >= self.next.max(LEAST * 2);
        if is_due {
            self.next = (self.series.len() as f64 * NEXT) as usize;
        }
        if self.series.len() == KEPT {
            let mut keeps = false;
            self.series.retain(|_| {
                keeps = !keeps;
                keeps
            });
            self.every = self.every.max(1) * 2;
            self.next = (self.next / 2).max(KEPT / 2 + 1);
        }
        if is_due { self.judge() } else { None }
    }

    /// Judges what was seen so far.
    pub fn judge(&self) -> Option<Leak> {
        leak(&self.series)
    }
}

#[cfg(test)]
mod tests;
