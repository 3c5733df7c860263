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

mod check;
mod growth;

use serde::Serialize;

pub use check::LeakCheck;
pub(crate) use growth::Growth;

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

impl Leak {
    /// Returns the number of further steps that take `bytes_more`.
    pub fn steps_until(&self, bytes_more: u64) -> u64 {
        (bytes_more as f64 / self.bytes_per_step) as u64
    }
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
    let of_rank = records.iter().filter_map(|record| match record {
        Record::Step(step) if step.rank == rank && belongs_to(run, step) => Some((step.step, step.in_use_bytes?)),
        _ => None,
    });
    of_rank.collect()
}
