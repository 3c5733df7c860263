//! The run that is judged, and the steps that are its: several programs may write one file, and several files may be given,
//! in any order.

use std::collections::BTreeSet;

use crate::recording::{Record, Run, Start, StepRecord};

use super::in_time;
use crate::recording::{is_of_process, last_run};

/// The run that began last.
#[derive(Clone, Debug)]
pub(super) struct Last<'a> {
    pub run: Option<&'a Run>,
    /// Its steps, those of the first rank there is, in the order of time.
    pub steps: Vec<&'a StepRecord>,
    pub doubt: Option<Doubt>,
}

/// Why there are no steps of the run, or too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Doubt {
    /// None that was recorded is its: so many ended before it began, and so many other processes took.
    NoneIsIts { before: usize, others: usize },
    /// From this number on, two steps have the same one.
    Repeated { from: u64 },
}

impl<'a> Last<'a> {
    pub(super) fn of(records: &'a [Record]) -> Self {
        let run = last_run(records);
        let all = in_time(records, |record| match record {
            Record::Step(step) => Some((step.at, &**step)),
            _ => None,
        });
        let (own, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|step| run.is_none_or(|run| is_of_process(run, step)));
        let (steps, before): (Vec<_>, Vec<_>) =
            own.into_iter().partition(|step| run.is_none_or(|run| step.at >= run.at));
        let rank = steps.iter().map(|step| step.rank).min();
        let steps: Vec<_> = steps.into_iter().filter(|step| Some(step.rank) == rank).collect();
        let none = Doubt::NoneIsIts { before: before.len(), others: others.len() };
        let are_elsewhere = steps.is_empty() && before.len() + others.len() > 0;
        let doubt = if are_elsewhere { Some(none) } else { repeated(&steps).map(|from| Doubt::Repeated { from }) };
        Self { run, steps, doubt }
    }
}

/// The first number that a step has which another had before it: a session gives each number once.
fn repeated(steps: &[&StepRecord]) -> Option<u64> {
    let mut numbers = BTreeSet::new();
    steps.iter().map(|step| step.step).find(|number| !numbers.insert(*number))
}

/// The last monitor that began before this; else the last.
pub(super) fn started(records: &[Record], end: f64) -> Option<&Start> {
    let starts = records.iter().filter_map(|record| match record {
        Record::Start(start) => Some(start),
        _ => None,
    });
    starts.max_by(|a, b| (a.at <= end).cmp(&(b.at <= end)).then(a.at.total_cmp(&b.at)))
}
