//! Runs beside a process that occupies memory: planned settings, and the smallest free memory with which a step ran.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use anyhow::Result;
use gpu_tuned_core::Bytes;

use super::data::Line;
use super::subject::{Run, Subject};
use crate::figures::{difference, mib, or_dash, three_digits};
use crate::markdown::{cells, table};

/// A run whose free memory was bisected.
pub(super) struct Bisection {
    pub model: String,
    pub run: Run,
    /// Smallest free memory that was enough, with its samples per second.
    pub enough: Option<(Bytes, Option<f64>)>,
    /// Largest free memory that was not enough.
    pub too_little: Option<Bytes>,
    /// Memory needed by the plan, with its margin.
    pub bound: Bytes,
}

/// Maximum of the bound over the boundary, less one.
const GOAL: f64 = 0.03;

/// Collects the bisections of each run.
pub(super) fn all(subjects: &[Subject], lines: &[Line]) -> Result<Vec<Bisection>> {
    let mut found = Vec::new();
    for subject in subjects {
        let mut tries: BTreeMap<Run, Vec<&Line>> = BTreeMap::new();
        for line in lines.iter().filter(|line| line.model == subject.name && line.test == "boundary") {
            tries.entry(Run::new(line)).or_default().push(line);
        }
        for (run, tries) in tries {
            let need = subject.need(run)?;
            let outcome = |ok: bool| {
                let with = tries.iter().filter(move |line| line.ok == Some(ok));
                with.filter_map(|line| Some((Bytes::from_mib(line.free_mib?), line.samples_per_second)))
            };
            found.push(Bisection {
                model: subject.name.to_owned(),
                run,
                enough: outcome(true).min_by_key(|(free, _)| *free),
                too_little: outcome(false).map(|(free, _)| free).max(),
                bound: need.total() + need.margin,
            });
        }
    }
    Ok(found)
}

impl Bisection {
    /// Minimum of the bound over the boundary, less one. The boundary is at most the memory that was enough.
    pub(super) fn min_excess(&self) -> Option<f64> {
        self.enough.map(|(enough, _)| self.excess_over(enough))
    }

    /// Maximum of the bound over the boundary, less one. The boundary is above the memory that was not enough.
    pub(super) fn max_excess(&self) -> Option<f64> {
        self.too_little.map(|failed| self.excess_over(failed))
    }

    fn excess_over(&self, free: Bytes) -> f64 {
        self.bound.0 as f64 / free.0 as f64 - 1.0
    }

    /// Returns true if the bound meets [`GOAL`]; `None` if the goal is between minimum and maximum.
    pub(super) fn is_close(&self) -> Option<bool> {
        match (self.min_excess(), self.max_excess()) {
            (Some(min), _) if min > GOAL => Some(false),
            (_, Some(max)) if max <= GOAL => Some(true),
            _ => None,
        }
    }

    /// Formats the range of the bound over the boundary.
    pub(super) fn range(&self) -> String {
        format!("{} to {}", or_dash(self.min_excess(), difference), or_dash(self.max_excess(), difference))
    }

    /// Rates the bound.
    fn verdict(&self) -> &'static str {
        match (self.too_little, self.enough, self.is_close()) {
            (Some(failed), ..) if self.bound <= failed => "below the boundary",
            (_, None, _) => "nothing ran",
            (_, Some((enough, _)), _) if self.bound < enough => "within the bisection",
            (.., Some(true)) => "ok",
            (.., Some(false)) => "above the goal",
            (.., None) => "goal undecided",
        }
    }
}

/// Formats the ranges of the runs with the smallest and with the largest bound over the boundary.
pub(super) fn extremes(all: &[Bisection]) -> [String; 2] {
    let at_most = |run: &Bisection| run.max_excess().or(run.min_excess());
    let compared = |a: Option<f64>, b: Option<f64>| a.partial_cmp(&b).unwrap_or(Ordering::Equal);
    let lowest = all.iter().min_by(|a, b| compared(a.min_excess(), b.min_excess()));
    let highest = all.iter().max_by(|a, b| compared(at_most(a), at_most(b)));
    let open = |run: &Bisection| if run.is_close().is_none() { ": goal undecided" } else { "" };
    [
        or_dash(lowest, |run| format!("{} ({})", run.range(), run.model)),
        or_dash(highest, |run| format!("{} ({}){}", run.range(), run.model, open(run))),
    ]
}

/// Formats all bisections.
pub(super) fn section(all: &[Bisection]) -> String {
    let row = |it: &Bisection| {
        let (failed, ran) = (or_dash(it.too_little, mib), or_dash(it.enough.map(|(free, _)| free), mib));
        let speed = or_dash(it.enough.and_then(|(_, speed)| speed), three_digits);
        let Run { mode, batch, .. } = it.run;
        cells![it.model, mode, batch, failed, ran, speed, mib(it.bound), it.range(), it.verdict()]
    };
    let headings =
        ["model", "mode", "batch", "failed with, MiB", "ran with, MiB", "samples/s there", "bound, MiB", "above", ""];
    table(headings, all.iter().map(row))
}

/// Returns true if all steps ran.
fn ran(line: &Line) -> bool {
    !line.out_of_memory && line.reserved().is_some()
}

/// Number of failed runs, of all.
pub(super) fn failed(lines: &[Line]) -> String {
    format!("{} of {}", lines.iter().filter(|line| !ran(line)).count(), lines.len())
}

/// Formats all runs.
pub(super) fn confirmed(lines: &[Line]) -> String {
    let row = |line: &Line| {
        let (split, reserved) = (format!("{} x {}", line.accumulate, line.batch), or_dash(line.reserved(), mib));
        let free = or_dash(line.free_mib, |free| free.to_string());
        cells![line.model, line.mode(), free, split, reserved, if ran(line) { "ran" } else { "failed" }]
    };
    table(["model", "mode", "free, MiB", "planned", "pools reserved, MiB", ""], lines.iter().map(row))
}
