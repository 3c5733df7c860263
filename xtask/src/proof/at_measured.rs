//! Reserved memory at measured micro-batches, compared with the lock.

use anyhow::Result;
use gpu_tuned_core::Bytes;

use super::data::{Line, Results};
use super::subject::{Run, Subject};
use crate::figures::{difference, folded, max, mib};
use crate::markdown::{cells, table};

/// A run at a measured micro-batch.
pub(super) struct AtMeasured {
    model: String,
    run: Run,
    /// Free memory beside another process, in MiB.
    free_mib: Option<u64>,
    predicted: Bytes,
    reserved: Bytes,
    /// Room of the memory pools on the smallest device that a plan with this batch fits.
    room: Bytes,
}

/// Collects the runs at measured micro-batches: traced runs, then confirmed ones.
pub(super) fn all(subjects: &[Subject], results: &Results) -> Result<Vec<AtMeasured>> {
    let mut found = Vec::new();
    for line in results.traced().chain(&results.confirmed).filter(|line| line.was_executed() == Some(true)) {
        let subject = subjects.iter().find(|subject| subject.name == line.model);
        let subject = subject.filter(|subject| subject.is_measured(line.mode(), line.batch));
        if let (Some(subject), Some(reserved)) = (subject, line.reserved()) {
            found.push(AtMeasured::new(subject, line, reserved)?);
        }
    }
    Ok(found)
}

impl AtMeasured {
    fn new(subject: &Subject, line: &Line, reserved: Bytes) -> Result<Self> {
        let run = Run::new(line);
        let need = subject.need(run)?;
        let whole = (need.fixed + need.bound()).scaled(1.0 / (1.0 - subject.goal.memory_headroom));
        Ok(Self {
            model: subject.name.to_owned(),
            run,
            free_mib: line.free_mib,
            predicted: need.bound(),
            reserved,
            room: whole - need.fixed,
        })
    }

    /// Reserved less predicted memory, in MiB.
    fn excess_mib(&self) -> f64 {
        self.reserved.mib() - self.predicted.mib()
    }

    /// Reserved over predicted memory, less one.
    fn excess(&self) -> f64 {
        self.reserved.0 as f64 / self.predicted.0 as f64 - 1.0
    }

    fn exceeds_lock(&self) -> bool {
        self.reserved > self.predicted
    }

    fn exceeds_room(&self) -> bool {
        self.reserved > self.room
    }
}

/// Absolute values of the relative errors of memory.
pub(super) fn errors(all: &[AtMeasured]) -> Vec<f64> {
    all.iter().map(|run| run.excess().abs()).collect()
}

/// Number of runs that reserved more than the lock has, of all, with the largest excess.
pub(super) fn exceeded_lock(all: &[AtMeasured]) -> String {
    let (mib, relative) = worst(all.iter());
    let more = all.iter().filter(|run| run.exceeds_lock()).count();
    let by = if more == 0 { String::new() } else { format!(", by at most {mib:.0} MiB and {}", difference(relative)) };
    format!("{more} of {}{by}", all.len())
}

/// Number of runs that reserved more than their room, of all.
pub(super) fn exceeded_room(all: &[AtMeasured]) -> String {
    format!("{} of {}", all.iter().filter(|run| run.exceeds_room()).count(), all.len())
}

/// Largest excess over the lock in MiB, and the largest relative one.
fn worst<'a>(runs: impl Iterator<Item = &'a AtMeasured> + Clone) -> (f64, f64) {
    let largest = |figures: Vec<f64>| max(&figures).unwrap_or_default();
    (largest(runs.clone().map(AtMeasured::excess_mib).collect()), largest(runs.map(AtMeasured::excess).collect()))
}

/// Formats a summary and all runs.
pub(super) fn section(all: &[AtMeasured]) -> String {
    let group = |(name, is_confirmed): (&str, bool)| {
        let runs = all.iter().filter(|run| run.free_mib.is_some() == is_confirmed);
        let count = |exceeds: fn(&AtMeasured) -> bool| runs.clone().filter(|run| exceeds(run)).count();
        let (locked, room) = (count(AtMeasured::exceeds_lock), count(AtMeasured::exceeds_room));
        let (mib, relative) = worst(runs.clone());
        let cells = cells![name, runs.clone().count(), locked, format!("{mib:+.0}"), difference(relative), room];
        runs.clone().next().map(|_| cells)
    };
    let groups = [("traced", false), ("[confirmed](#smaller-cards)", true)].into_iter().filter_map(group);
    let summary = table(
        ["", "runs", "reserved more than the lock has", "max, MiB", "max", "more than that and headroom"],
        groups.chain([cells!["goal", "", 0, "", "", 0]]),
    );
    let row = |run: &AtMeasured| {
        let free = run.free_mib.map_or_else(|| "all".to_owned(), |free| free.to_string());
        let (excess, relative) = (format!("{:+.1}", run.excess_mib()), difference(run.excess()));
        let Run { mode, .. } = run.run;
        cells![run.model, mode, run.run.step(), free, mib(run.reserved), mib(run.predicted), excess, relative]
    };
    let headings = ["model", "mode", "step", "free, MiB", "reserved, MiB", "in the lock, MiB", "more, MiB", ""];
    let title = format!("at measured micro-batches: {} runs", all.len());
    format!("{summary}\n{}", folded(&title, &table(headings, all.iter().map(row))))
}
