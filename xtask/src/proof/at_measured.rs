//! Memory that steps reserved at measured micro-batches, against the lock.

use std::fmt::Write as _;

use anyhow::Result;
use gpu_tuned_core::Bytes;

use super::data::{Line, Results};
use super::figures::{difference, mib, most};
use super::subject::{Run, Subject};

/// One run at a measured micro-batch.
pub(super) struct AtMeasured {
    model: String,
    run: Run,
    /// Free memory beside another process.
    free_mib: Option<u64>,
    predicted: Bytes,
    reserved: Bytes,
    /// Room of the memory pools on the smallest device that a plan with this batch fits.
    room: Bytes,
}

/// Every run at a measured micro-batch: traced runs, then confirmed ones.
pub(super) fn all(subjects: &[Subject], results: &Results) -> Result<Vec<AtMeasured>> {
    let mut found = Vec::new();
    for line in results.traced().chain(&results.confirmed).filter(|line| line.was_executed() == Some(true)) {
        let subject = subjects.iter().find(|subject| subject.name == line.model);
        let subject = subject.filter(|subject| subject.is_measured(line.mode(), line.batch));
        if let (Some(subject), Some(held)) = (subject, line.reserved()) {
            found.push(AtMeasured::of(subject, line, held)?);
        }
    }
    Ok(found)
}

impl AtMeasured {
    fn of(subject: &Subject, line: &Line, held: Bytes) -> Result<Self> {
        let run = Run::of(line);
        let need = subject.need(run)?;
        let whole = (need.fixed + need.bound()).scaled(1.0 / (1.0 - subject.goal.memory_headroom));
        Ok(Self {
            model: subject.name.to_owned(),
            run,
            free_mib: line.free_mib,
            predicted: need.bound(),
            reserved: held,
            room: whole - need.fixed,
        })
    }

    fn above(&self) -> f64 {
        self.reserved.mib() - self.predicted.mib()
    }

    fn share(&self) -> f64 {
        self.reserved.0 as f64 / self.predicted.0 as f64 - 1.0
    }

    fn held_more(&self) -> bool {
        self.reserved > self.predicted
    }

    /// Returns true if the run reserved more than the room.
    fn overran(&self) -> bool {
        self.reserved > self.room
    }
}

/// Relative errors of the memory at measured micro-batches: reserved over predicted, less one, without sign.
pub(super) fn errors(all: &[AtMeasured]) -> Vec<f64> {
    all.iter().map(|run| run.share().abs()).collect()
}

/// Number of runs that reserved more than the lock has, of all, with the largest excess.
pub(super) fn held_more(all: &[AtMeasured]) -> String {
    let (mib, share) = worst(all.iter());
    let more = all.iter().filter(|run| run.held_more()).count();
    let by = if more == 0 { String::new() } else { format!(", by at most {mib:.0} MiB and {}", difference(share)) };
    format!("{more} of {}{by}", all.len())
}

/// Number of runs that reserved more than their room, of all.
pub(super) fn overran(all: &[AtMeasured]) -> String {
    format!("{} of {}", all.iter().filter(|run| run.overran()).count(), all.len())
}

/// Largest excess over the lock in MiB, and the largest relative one.
fn worst<'a>(runs: impl Iterator<Item = &'a AtMeasured> + Clone) -> (f64, f64) {
    let largest = |figures: Vec<f64>| most(&figures).unwrap_or_default();
    (largest(runs.clone().map(AtMeasured::above).collect()), largest(runs.map(AtMeasured::share).collect()))
}

/// Writes the section.
pub(super) fn section(text: &mut String, all: &[AtMeasured]) -> Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    text.push_str(INTRODUCTION);
    let ways = [("traced", false), ("[confirmed](#smaller-cards)", true)];
    for (way, is_confirmed) in ways {
        let runs = all.iter().filter(|run| run.free_mib.is_some() == is_confirmed);
        let (mib, share) = worst(runs.clone());
        let (more, overran) = (runs.clone().filter(|run| run.held_more()), runs.clone().filter(|run| run.overran()));
        let (count, more, overran) = (runs.clone().count(), more.count(), overran.count());
        if count > 0 {
            writeln!(text, "| {way} | {count} | {more} | {mib:+.0} | {} | {overran} |", difference(share))?;
        }
    }
    text.push_str("| goal | | 0 | | | 0 |\n");
    writeln!(text, "\n<details><summary>at measured micro-batches: {} runs</summary>\n", all.len())?;
    text.push_str("| model | mode | step | free, MiB | reserved, MiB | in the lock, MiB | more, MiB | |\n");
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    for run in all {
        let free = run.free_mib.map_or_else(|| "all".to_owned(), |free| free.to_string());
        let AtMeasured { model, run: Run { mode, .. }, predicted, reserved, .. } = run;
        let (step, held, said) = (run.run.step(), mib(*reserved), mib(*predicted));
        let (above, share) = (run.above(), difference(run.share()));
        writeln!(text, "| {model} | {mode} | {step} | {free} | {held} | {said} | {above:+.1} | {share} |")?;
    }
    text.push_str("\n</details>\n");
    Ok(())
}

const INTRODUCTION: &str = "
### At measured micro-batches

At a measured micro-batch a plan uses the bytes of the dry run, without a margin. Excess comes out of the headroom, and out of context and
kernels that take less than estimated. The last column counts runs that reserved more than the memory pools have on the smallest device
that such a plan fits: the measured bytes and the headroom.

| | runs | reserved more than the lock has | most, MiB | most | more than that and headroom |
|---|---|---|---|---|---|
";
