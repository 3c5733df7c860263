//! Predicted and reserved memory at sizes that are not in the lock.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use gpu_tuned_core::Bytes;

use super::data::{Line, Results};
use super::figures::{difference, max, median, mib, or_dash, percent, percentile};
use super::pairs::Pairs;
use super::subject::{Run, Subject};

/// A run at a size that is not in the lock.
pub(super) struct HeldOut {
    model: String,
    run: Run,
    is_executed: bool,
    observed: Bytes,
    predicted: Bytes,
    bound: Bytes,
}

/// Numbers of runs that are not compared, by reason.
#[derive(Default)]
struct Excluded {
    measured: usize,
    other_modes: usize,
    out_of_memory: usize,
    failed: usize,
}

/// Predictions and observations, by model and run.
#[derive(Default)]
pub(super) struct Comparison {
    all: Vec<HeldOut>,
    excluded: Excluded,
    /// Runs of `pairs.jsonl`, whose kernels may differ from the lock's.
    in_pairs: Vec<HeldOut>,
    pairs: Pairs,
}

/// Runs of at least this size are summarised separately: an eighth of an 8 GiB card.
const LARGE: Bytes = Bytes::from_mib(1024);

fn is_large(run: &HeldOut) -> bool {
    run.observed >= LARGE
}

impl Comparison {
    pub(super) fn new(subjects: &[Subject], results: &Results) -> Result<Self> {
        let (mut all, mut in_pairs, mut excluded) = (Vec::new(), Vec::new(), Excluded::default());
        for subject in subjects {
            all.extend(excluded.held_out(subject, results.traced().chain(&results.confirmed))?);
            in_pairs.extend(Excluded::default().held_out(subject, results.pairs.iter())?);
        }
        Ok(Self { all, excluded, in_pairs, pairs: Pairs::new(results) })
    }

    /// Absolute values of the relative errors.
    pub(super) fn errors(&self) -> Vec<f64> {
        self.all.iter().map(|run| run.error().abs()).collect()
    }

    /// Number of runs above the bound, of all.
    pub(super) fn exceeded(&self) -> String {
        exceeded(&self.all)
    }

    /// Number of runs of pairs above the bound, of all.
    pub(super) fn exceeded_in_pairs(&self) -> String {
        exceeded(&self.in_pairs)
    }

    pub(super) fn section(&self, text: &mut String) -> Result<()> {
        text.push_str(INTRODUCTION);
        summary(text, "all", &self.all, |_| true)?;
        summary(text, "of 1 GiB and more", &self.all, is_large)?;
        summary(text, "executed", &self.all, |run| run.is_executed)?;
        summary(text, "dry", &self.all, |run| !run.is_executed)?;
        summary(text, "accumulating, or with batches waiting", &self.all, |run| !run.is_plain())?;
        summary(
            text,
            "of [pairs](../tests/hardware/results/README.md), some with other kernels than the lock's",
            &self.in_pairs,
            |_| true,
        )?;
        summary(text, "the same, of 1 GiB and more", &self.in_pairs, is_large)?;
        summary(text, "the same, accumulating, or with batches waiting", &self.in_pairs, |run| !run.is_plain())?;
        text.push_str("| goal | | | | | 0 |\n");
        text.push_str(WITHOUT_GPU);
        self.excluded.note(text)?;
        self.pairs.note(text)?;
        for (runs, suffix) in [(&self.all, ""), (&self.in_pairs, ", pairs")] {
            for runs in runs.chunk_by(|a, b| a.model == b.model) {
                details(text, &format!("{}{suffix}", runs[0].model), runs)?;
            }
        }
        Ok(())
    }
}

/// Writes the errors of the runs that pass.
fn summary(text: &mut String, name: &str, all: &[HeldOut], passes: impl Fn(&HeldOut) -> bool) -> Result<()> {
    let passing: Vec<_> = all.iter().filter(|run| passes(run)).collect();
    if passing.is_empty() {
        return Ok(());
    }
    let errors: Vec<f64> = passing.iter().map(|run| run.error().abs()).collect();
    let [median, tail, largest] =
        [median(&errors), percentile(&errors, 0.95), max(&errors)].map(|error| or_dash(error, percent));
    let exceeded = passing.iter().filter(|run| run.excess().is_some()).count();
    writeln!(text, "| {name} | {} | {median} | {tail} | {largest} | {exceeded} |", errors.len())?;
    Ok(())
}

/// Number of runs above the bound, of all, with the largest excess.
fn exceeded(all: &[HeldOut]) -> String {
    if all.is_empty() {
        return "-".to_owned();
    }
    let excesses: Vec<f64> = all.iter().filter_map(HeldOut::excess).collect();
    let at_most = max(&excesses).map_or_else(String::new, |max| format!(", by at most {}", percent(max)));
    format!("{} of {}{at_most}", excesses.len(), all.len())
}

/// Writes a table of runs.
fn details(text: &mut String, name: &str, runs: &[HeldOut]) -> Result<()> {
    writeln!(text, "\n<details><summary>{name}: {} runs</summary>\n", runs.len())?;
    text.push_str("| mode | step | method | observed, MiB | predicted, MiB | error | bound, MiB |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    runs.iter().try_for_each(|run| run.row(text))?;
    text.push_str("\n</details>\n");
    Ok(())
}

impl HeldOut {
    fn new(subject: &Subject, run: Run, is_executed: bool, observed: Bytes) -> Result<Self> {
        let predicted = subject.need(run)?;
        Ok(Self {
            model: subject.name.to_owned(),
            run,
            is_executed,
            observed,
            predicted: predicted.pools,
            bound: predicted.bound(),
        })
    }

    /// Predicted over observed memory, less one.
    fn error(&self) -> f64 {
        self.predicted.0 as f64 / self.observed.0 as f64 - 1.0
    }

    /// Observed memory over the bound, less one; `None` within the bound.
    fn excess(&self) -> Option<f64> {
        (self.observed > self.bound).then(|| self.observed.0 as f64 / self.bound.0 as f64 - 1.0)
    }

    const fn is_plain(&self) -> bool {
        self.run.accumulate == 1 && self.run.queue == 0
    }

    fn row(&self, text: &mut String) -> Result<()> {
        let (mode, step) = (self.run.mode, self.run.step());
        let method = if self.is_executed { "executed" } else { "dry" };
        let over = if self.excess().is_some() { " (exceeded)" } else { "" };
        let [observed, predicted, bound] = [self.observed, self.predicted, self.bound].map(mib);
        let error = difference(self.error());
        writeln!(text, "| {mode} | {step} | {method} | {observed} | {predicted} | {error} | {bound}{over} |")?;
        Ok(())
    }
}

impl Excluded {
    /// Returns the comparable runs of a model, with the maximum of equal runs. Counts the others.
    fn held_out<'l>(&mut self, subject: &Subject, lines: impl Iterator<Item = &'l Line>) -> Result<Vec<HeldOut>> {
        let mut observed: BTreeMap<(Run, bool), Bytes> = BTreeMap::new();
        for line in lines.filter(|line| line.model == subject.name) {
            let Some(is_executed) = line.was_executed() else { continue };
            let run = Run::new(line);
            match line.reserved() {
                _ if !subject.has(run.mode) => self.other_modes += 1,
                _ if subject.is_measured(run.mode, run.batch) => self.measured += 1,
                None if line.out_of_memory => self.out_of_memory += 1,
                None => self.failed += 1,
                Some(bytes) => {
                    let max = observed.entry((run, !is_executed)).or_default();
                    *max = bytes.max(*max);
                }
            }
        }
        observed.into_iter().map(|((run, is_dry), observed)| HeldOut::new(subject, run, !is_dry, observed)).collect()
    }

    fn note(&self, text: &mut String) -> Result<()> {
        let counts = [
            (self.measured, "at measured micro-batches (below)"),
            (self.other_modes, "in modes that are not in the lock"),
            (self.out_of_memory, "ran out of memory"),
            (self.failed, "failed otherwise"),
        ];
        let listed: Vec<_> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, reason)| format!("{count} {reason}")).collect();
        if !listed.is_empty() {
            writeln!(text, "\nExcluded runs: {}.", listed.join(", "))?;
        }
        Ok(())
    }
}

const INTRODUCTION: &str = "
## Memory

Maximum bytes reserved by the memory pools, at sizes that are not in the lock, compared with interpolation between measured neighbours. The
error is predicted over observed, less one. The bound is the prediction plus the plan's margin. `executed` steps ran their kernels, `dry`
steps did not. Runs beside a process that occupied memory are included. Up to 8 MiB left by another thread at device start-up are excluded.

| | runs | median error | 95th percentile | largest | above the bound |
|---|---|---|---|---|---|
";

const WITHOUT_GPU: &str = "
[Another report](../tests/models/REPLAYED.md) evaluates memory that is simulated without a GPU.
";
