//! What steps held at batches of the lock, beside what the lock says of them.

use std::fmt::Write as _;

use anyhow::Result;
use gpu_tuned_core::Bytes;

use super::data::{Line, Results};
use super::figures::{difference, mib, most};
use super::subject::{Run, Subject};

/// One run at a batch of the lock.
pub(super) struct AtPoint {
    model: String,
    run: Run,
    /// Memory that another process left free.
    free_mib: Option<u64>,
    said: Bytes,
    held: Bytes,
    /// What the memory pools have on the smallest device that a plan with this batch fits.
    room: Bytes,
}

/// Every run at a batch of the lock: those that were traced, then those that were confirmed.
pub(super) fn all(subjects: &[Subject], results: &Results) -> Result<Vec<AtPoint>> {
    let mut found = Vec::new();
    for line in results.traced().chain(&results.confirmed).filter(|line| line.was_executed() == Some(true)) {
        let subject = subjects.iter().find(|subject| subject.name == line.model);
        let subject = subject.filter(|subject| subject.is_point(line.mode(), line.batch));
        if let (Some(subject), Some(held)) = (subject, line.reserved()) {
            found.push(AtPoint::of(subject, line, held)?);
        }
    }
    Ok(found)
}

impl AtPoint {
    fn of(subject: &Subject, line: &Line, held: Bytes) -> Result<Self> {
        let run = Run::of(line);
        let need = subject.need(run)?;
        let whole = (need.fixed + need.bound()).scaled(1.0 / (1.0 - subject.goal.memory_headroom));
        Ok(Self {
            model: subject.name.to_owned(),
            run,
            free_mib: line.free_mib,
            said: need.bound(),
            held,
            room: whole - need.fixed,
        })
    }

    fn above(&self) -> f64 {
        self.held.mib() - self.said.mib()
    }

    fn share(&self) -> f64 {
        self.held.0 as f64 / self.said.0 as f64 - 1.0
    }

    fn held_more(&self) -> bool {
        self.held > self.said
    }

    /// Whether it held more than there may be for it.
    fn overran(&self) -> bool {
        self.held > self.room
    }
}

/// How many held more than the lock says, of all, and by how much.
pub(super) fn held_more(all: &[AtPoint]) -> String {
    let (mib, share) = worst(all.iter());
    let more = all.iter().filter(|run| run.held_more()).count();
    let by = if more == 0 { String::new() } else { format!(", by at most {mib:.0} MiB and {}", difference(share)) };
    format!("{more} of {}{by}", all.len())
}

/// How many held more than there may be for them, of all.
pub(super) fn overran(all: &[AtPoint]) -> String {
    format!("{} of {}", all.iter().filter(|run| run.overran()).count(), all.len())
}

/// The most MiB that any held beyond what the lock says, and the largest share; of different runs, perhaps.
fn worst<'a>(runs: impl Iterator<Item = &'a AtPoint> + Clone) -> (f64, f64) {
    let largest = |figures: Vec<f64>| most(&figures).unwrap_or_default();
    (largest(runs.clone().map(AtPoint::above).collect()), largest(runs.map(AtPoint::share).collect()))
}

/// The section about them.
pub(super) fn section(text: &mut String, all: &[AtPoint]) -> Result<()> {
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
    writeln!(text, "\n<details><summary>at batches of the lock: {} runs</summary>\n", all.len())?;
    text.push_str("| model | mode | step | free, MiB | held, MiB | the lock says, MiB | more, MiB | |\n");
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    for run in all {
        let free = run.free_mib.map_or_else(|| "all".to_owned(), |free| free.to_string());
        let AtPoint { model, run: Run { mode, .. }, said, held, .. } = run;
        let (step, held, said) = (run.run.step(), mib(*held), mib(*said));
        let (above, share) = (run.above(), difference(run.share()));
        writeln!(text, "| {model} | {mode} | {step} | {free} | {held} | {said} | {above:+.1} | {share} |")?;
    }
    text.push_str("\n</details>\n");
    Ok(())
}

const INTRODUCTION: &str = "
### At batches of the lock

Of its own batches the lock says what dry runs held, and a plan adds no margin to that. What is held beyond it comes out of the
headroom, and of what context and kernels take less than is estimated. The last column counts runs that held more than there
is for memory pools on the smallest device that such a plan fits: what the lock says, and the headroom.

| | runs | held more than the lock says | most, MiB | most | more than that and headroom |
|---|---|---|---|---|---|
";
