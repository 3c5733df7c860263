//! Pools that hold much more than they need.

use super::{Change, DiagnosisInput, Finding, Kind, Prediction, Quantity, Severity};
use crate::diagnose::words::{bytes, times};
use crate::leak::Growth;
use crate::stats::median;

/// Above what was planned, or above what it was at first, by so much.
const MUCH: f64 = 1.5;
/// Less than this is the price of pools.
const LEAST: f64 = 256.0 * 1_048_576.0;
/// So much of what may be taken is critical to whoever else wants some.
const NEARLY_ALL: f64 = 0.9;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (steps, run) = (input.stats.steps.as_ref().ok()?, input.stats.run?);
    let used: Vec<_> =
        steps.memory.iter().filter_map(|memory| Some((memory.step as f64, memory.in_use? as f64))).collect();
    // What leaks is no fragment.
    if Growth::measure(&used).is_some_and(|growth| growth.added() >= LEAST / 4.0) {
        return None;
    }
    let held: Vec<f64> = steps.memory.iter().filter_map(|memory| memory.reserved).map(|held| held as f64).collect();
    let last = *held.last()?;
    let first = median(held.iter().take(held.len().div_ceil(10)).copied())?;
    let planned = run.memory_planned_bytes.map(|planned| planned as f64);
    let is_above = |base: f64| last >= MUCH * base && last - base >= LEAST;
    let (base, of_what) = match planned.filter(|planned| is_above(*planned)) {
        Some(planned) => (planned, "what the plan has"),
        None if is_above(first) => (first, "what they held at first"),
        None => return None,
    };
    let budget = run.memory_budget_bytes.map(|budget| budget as f64);
    let severity =
        if budget.is_some_and(|budget| last >= NEARLY_ALL * budget) { Severity::Warning } else { Severity::Hint };
    let headline = format!("memory is fragmented: the pools hold {} {of_what}", times(last / base));
    let change = Change::new(
        "give all batches the same shape (drop the last, or pad sequences to few lengths), and call `memory_cleanup` where \
         shapes change for good, such as after validation",
    );
    let words = format!("the pools hold {} and {of_what} is {}, {}", bytes(last), bytes(base), input.over());
    let finding = Finding::new(Kind::Fragmentation, severity, headline, change)
        .with_evidence(words, [("reserved_bytes", last), ("expected_bytes", base)]);
    let how = format!("{of_what}, since as much is in use as before");
    Some(finding.with_prediction(Prediction::new(Quantity::MemoryBytes, last, base, how)))
}
