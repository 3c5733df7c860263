//! The judged run and its steps. Several programs may write one file, and several files may be given in any order.

use std::collections::BTreeSet;

use crate::recording::{Record, Run, Start, StepRecord};

use super::sorted_by_time;
use crate::recording::is_of_process;

/// A reason to doubt that the steps are those of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Doubt {
    /// No recorded step is of the run: some ended `before` it began, and some are of `others`.
    NoOwnSteps { before: usize, others: usize },
    /// Step numbers repeat, from this one on.
    Repeated { from: u64 },
}

/// Returns the steps of `run` and of its first recorded rank, in the order of time, and a reason to doubt them.
pub(super) fn steps_of_run<'a>(run: Option<&Run>, records: &'a [Record]) -> (Vec<&'a StepRecord>, Option<Doubt>) {
    let all = sorted_by_time(records, |record| match record {
        Record::Step(step) => Some((step.at, &**step)),
        _ => None,
    });
    let (own, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|step| run.is_none_or(|run| is_of_process(run, step)));
    let (steps, before): (Vec<_>, Vec<_>) = own.into_iter().partition(|step| run.is_none_or(|run| step.at >= run.at));
    let rank = steps.iter().map(|step| step.rank).min();
    let steps: Vec<_> = steps.into_iter().filter(|step| Some(step.rank) == rank).collect();
    let none = Doubt::NoOwnSteps { before: before.len(), others: others.len() };
    let are_elsewhere = steps.is_empty() && before.len() + others.len() > 0;
    let doubt = if are_elsewhere { Some(none) } else { repeated(&steps).map(|from| Doubt::Repeated { from }) };
    (steps, doubt)
}

/// Returns the first step number that repeats: a session gives each number once.
fn repeated(steps: &[&StepRecord]) -> Option<u64> {
    let mut numbers = BTreeSet::new();
    steps.iter().map(|step| step.step).find(|number| !numbers.insert(*number))
}

/// Returns the last monitor that started before `end`, else the last.
pub(super) fn last_start(records: &[Record], end: f64) -> Option<&Start> {
    let starts = records.iter().filter_map(|record| match record {
        Record::Start(start) => Some(start),
        _ => None,
    });
    starts.max_by(|a, b| (a.at <= end).cmp(&(b.at <= end)).then(a.at.total_cmp(&b.at)))
}
