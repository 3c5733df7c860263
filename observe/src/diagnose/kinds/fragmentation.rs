//! Pools that reserve much more than the step needs.

use super::{Change, DiagnosisInput, Finding, Kind, Prediction, Quantity, Severity};
use crate::diagnose::words::{bytes, times};
use crate::leak::Growth;
use crate::stats::median;

/// Reserved bytes over the planned ones, or over those at first, that are worth a finding.
const MUCH: f64 = 1.5;
/// Excess in bytes that is worth a finding: less is the usual cost of pools.
const MIN_EXCESS: f64 = 256.0 * 1_048_576.0;
/// Part of the budget above which other programs run short.
const NEARLY_ALL: f64 = 0.9;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (steps, run) = (input.stats.steps.as_ref().ok()?, input.stats.run?);
    let used: Vec<_> =
        steps.memory.iter().filter_map(|memory| Some((memory.step as f64, memory.in_use? as f64))).collect();
    // Memory in use that grows is a leak.
    if Growth::measure(&used).is_some_and(|growth| growth.added() >= MIN_EXCESS / 4.0) {
        return None;
    }
    let reserved: Vec<f64> = steps.memory.iter().filter_map(|memory| Some(memory.reserved? as f64)).collect();
    let last = *reserved.last()?;
    let first = median(reserved.iter().take(reserved.len().div_ceil(10)).copied())?;
    let planned = run.memory_planned_bytes.map(|planned| planned as f64);
    let is_above = |base: f64| last >= MUCH * base && last - base >= MIN_EXCESS;
    let (base, of_what) = match planned.filter(|planned| is_above(*planned)) {
        Some(planned) => (planned, "planned"),
        None if is_above(first) => (first, "reserved at first"),
        None => return None,
    };
    let budget = run.memory_budget_bytes.map(|budget| budget as f64);
    let severity =
        if budget.is_some_and(|budget| last >= NEARLY_ALL * budget) { Severity::Warning } else { Severity::Hint };
    let headline = format!("memory is fragmented: the pools reserve {} the memory {of_what}", times(last / base));
    let change = Change::new(
        "give all batches the same shape (drop the last, or pad sequences to few lengths), and call `memory_cleanup` where \
         shapes change for good, such as after validation",
    );
    let words = format!("the pools reserve {}, and {} were {of_what}, {}", bytes(last), bytes(base), input.range());
    let how = format!("the memory {of_what}, since the memory in use does not grow");
    let finding = Finding::new(Kind::Fragmentation, severity, headline, change);
    Some(
        finding
            .with_evidence(words, [("reserved_bytes", last), ("expected_bytes", base)])
            .with_prediction(Prediction::new(Quantity::MemoryBytes, last, base, how)),
    )
}
