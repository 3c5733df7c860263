//! Predicted and reserved memory at sizes that are not in the lock.

use std::collections::BTreeMap;

use anyhow::Result;
use gpu_tuned_core::Bytes;

use super::data::{Line, Results};
use super::subject::{Run, Subject};
use crate::figures::{difference, folded, max, median, mib, or_dash, percent, percentile};
use crate::markdown::{cells, table};

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
}

/// Runs of at least this size are summarised separately: an eighth of an 8 GiB card.
const LARGE: Bytes = Bytes::from_mib(1024);

/// Runs that pass a condition, with their name.
type Group<'a> = (&'a str, &'a [HeldOut], fn(&HeldOut) -> bool);

impl Comparison {
    pub(super) fn new(subjects: &[Subject], results: &Results) -> Result<Self> {
        let (mut all, mut in_pairs, mut excluded) = (Vec::new(), Vec::new(), Excluded::default());
        for subject in subjects {
            all.extend(excluded.held_out(subject, results.traced().chain(&results.confirmed))?);
            in_pairs.extend(Excluded::default().held_out(subject, results.pairs.iter())?);
        }
        Ok(Self { all, excluded, in_pairs })
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

    /// Formats the errors of groups of runs.
    pub(super) fn summary(&self) -> String {
        let groups: [Group<'_>; 8] = [
            ("all", &self.all, |_| true),
            ("of 1 GiB and more", &self.all, HeldOut::is_large),
            ("executed", &self.all, |run| run.is_executed),
            ("dry", &self.all, |run| !run.is_executed),
            ("accumulating, or with batches waiting", &self.all, HeldOut::is_divided),
            ("of [pairs], some with other kernels than the lock's", &self.in_pairs, |_| true),
            ("the same, of 1 GiB and more", &self.in_pairs, HeldOut::is_large),
            ("the same, accumulating, or with batches waiting", &self.in_pairs, HeldOut::is_divided),
        ];
        let row = |(name, all, passes): Group<'_>| {
            let passing: Vec<_> = all.iter().filter(|run| passes(run)).collect();
            let errors: Vec<f64> = passing.iter().map(|run| run.error().abs()).collect();
            let [median, tail, largest] =
                [median(&errors), percentile(&errors, 0.95), max(&errors)].map(|error| or_dash(error, percent));
            let exceeded = passing.iter().filter(|run| run.excess().is_some()).count();
            (!passing.is_empty()).then(|| cells![name, errors.len(), median, tail, largest, exceeded])
        };
        table(
            ["", "runs", "median error", "95th percentile", "largest", "above the bound"],
            groups.into_iter().filter_map(row).chain([cells!["goal", "", "", "", "", 0]]),
        )
    }

    /// Numbers of runs that are not compared; empty without any.
    pub(super) fn excluded(&self) -> String {
        let Excluded { measured, other_modes, out_of_memory, failed } = self.excluded;
        let counts = [
            (measured, "at measured micro-batches (below)"),
            (other_modes, "in modes that are not in the lock"),
            (out_of_memory, "ran out of memory"),
            (failed, "failed otherwise"),
        ];
        let listed = counts.iter().filter(|(count, _)| *count > 0).map(|(count, reason)| format!("{count} {reason}"));
        let listed = listed.collect::<Vec<_>>().join(", ");
        if listed.is_empty() { listed } else { format!("Excluded runs: {listed}.\n") }
    }

    /// Formats all runs, by model.
    pub(super) fn details(&self) -> String {
        let headings = ["mode", "step", "method", "observed, MiB", "predicted, MiB", "error", "bound, MiB"];
        let mut text = String::new();
        for (all, suffix) in [(&self.all, ""), (&self.in_pairs, ", pairs")] {
            for runs in all.chunk_by(|a, b| a.model == b.model) {
                let title = format!("{}{suffix}: {} runs", runs[0].model, runs.len());
                text += &folded(&title, &table(headings, runs.iter().map(HeldOut::cells)));
            }
        }
        text
    }
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

    fn is_large(&self) -> bool {
        self.observed >= LARGE
    }

    /// Returns true for several micro-batches or prefetched batches.
    const fn is_divided(&self) -> bool {
        self.run.accumulate != 1 || self.run.queue != 0
    }

    fn cells(&self) -> [String; 7] {
        let method = if self.is_executed { "executed" } else { "dry" };
        let over = if self.excess().is_some() { " (exceeded)" } else { "" };
        let [observed, predicted, bound] = [self.observed, self.predicted, self.bound].map(mib);
        let bound = format!("{bound}{over}");
        cells![self.run.mode, self.run.step(), method, observed, predicted, difference(self.error()), bound]
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
}

/// Differences between executed and dry steps.
#[derive(Default)]
pub(super) struct Pairs {
    all: usize,
    same: usize,
    /// Largest excess of an executed step over its dry run.
    more: Bytes,
    /// Largest excess of a dry run over its executed step.
    less: Bytes,
}

impl Pairs {
    /// Compares each dry run with the last executed step before it, because other runs may have autotuned other kernels.
    pub(super) fn new(results: &Results) -> Self {
        let mut pairs = Self::default();
        let mut executed: BTreeMap<(&str, Run), Bytes> = BTreeMap::new();
        for line in results.traced().chain(&results.pairs) {
            let Some(reserved) = line.reserved() else { continue };
            let step = (line.model.as_str(), Run::new(line));
            if line.was_executed() == Some(true) {
                executed.insert(step, reserved);
            } else if let Some(executed) = executed.get(&step) {
                pairs.add(*executed, reserved);
            }
        }
        pairs
    }

    fn add(&mut self, executed: Bytes, dry: Bytes) {
        self.all += 1;
        self.same += usize::from(executed == dry);
        self.more = self.more.max(executed - dry);
        self.less = self.less.max(dry - executed);
    }

    /// Describes the differences.
    pub(super) fn describe(&self) -> String {
        let Self { all, same, more, less } = self;
        match all {
            0 => "No step ran both dry and executed, except at [measured micro-batches](#at-measured-micro-batches)."
                .into(),
            _ if same == all => format!("All {all} pairs of dry and executed steps reserved the same bytes."),
            _ => format!(
                "{same} of {all} pairs of dry and executed steps reserved the same bytes. Executed steps reserved up to {:.0} MiB more, \
                 and up to {:.0} MiB less.",
                more.mib(),
                less.mib()
            ),
        }
    }
}
