//! Predicted memory compared with reserved memory and with the free memory that was enough.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use anyhow::Result;
use gpu_tuned_core::{Bytes, three_digits};

use super::subject::{Run, Subject};
use crate::figures::{difference, folded, max, median, mib, or_dash, percent, percentile};
use crate::generated::{cells, table};
use crate::results::{Line, Results};

/// A run at a size that is not in the lock.
pub struct HeldOut {
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
pub struct Comparison {
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
    pub fn new(subjects: &[Subject], results: &Results) -> Result<Self> {
        let (mut all, mut in_pairs, mut excluded) = (Vec::new(), Vec::new(), Excluded::default());
        for subject in subjects {
            all.extend(excluded.held_out(subject, results.traced().chain(&results.confirmed))?);
            in_pairs.extend(Excluded::default().held_out(subject, results.pairs.iter())?);
        }
        Ok(Self { all, excluded, in_pairs })
    }

    /// Absolute values of the relative errors.
    pub fn errors(&self) -> Vec<f64> {
        self.all.iter().map(|run| run.error().abs()).collect()
    }

    /// Number of runs above the bound, of all.
    pub fn exceeded(&self) -> String {
        exceeded(&self.all)
    }

    /// Number of runs of pairs above the bound, of all.
    pub fn exceeded_in_pairs(&self) -> String {
        exceeded(&self.in_pairs)
    }

    /// Formats the errors of groups of runs.
    pub fn summary(&self) -> String {
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
    pub fn excluded(&self) -> String {
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
    pub fn details(&self) -> String {
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
pub struct Pairs {
    all: usize,
    same: usize,
    /// Largest excess of an executed step over its dry run.
    more: Bytes,
    /// Largest excess of a dry run over its executed step.
    less: Bytes,
}

impl Pairs {
    /// Compares each dry run with the last executed step before it, because other runs may have autotuned other kernels.
    pub fn new(results: &Results) -> Self {
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
    pub fn describe(&self) -> String {
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

/// A run at a measured micro-batch.
pub struct AtMeasured {
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
pub fn runs_at_measured(subjects: &[Subject], results: &Results) -> Result<Vec<AtMeasured>> {
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
pub fn errors(all: &[AtMeasured]) -> Vec<f64> {
    all.iter().map(|run| run.excess().abs()).collect()
}

/// Number of runs that reserved more than the lock has, of all, with the largest excess.
pub fn exceeded_lock(all: &[AtMeasured]) -> String {
    let (mib, relative) = worst(all.iter());
    let more = all.iter().filter(|run| run.exceeds_lock()).count();
    let by = if more == 0 { String::new() } else { format!(", by at most {mib:.0} MiB and {}", difference(relative)) };
    format!("{more} of {}{by}", all.len())
}

/// Number of runs that reserved more than their room, of all.
pub fn exceeded_room(all: &[AtMeasured]) -> String {
    format!("{} of {}", all.iter().filter(|run| run.exceeds_room()).count(), all.len())
}

/// Largest excess over the lock in MiB, and the largest relative one.
fn worst<'a>(runs: impl Iterator<Item = &'a AtMeasured> + Clone) -> (f64, f64) {
    let largest = |figures: Vec<f64>| max(&figures).unwrap_or_default();
    (largest(runs.clone().map(AtMeasured::excess_mib).collect()), largest(runs.map(AtMeasured::excess).collect()))
}

/// Formats a summary and all runs.
pub fn at_measured_section(all: &[AtMeasured]) -> String {
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

/// A run whose free memory was bisected.
pub struct Bisection {
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
const BOUNDARY_GOAL: f64 = 0.03;

/// Collects the bisections of each run.
pub fn bisections(subjects: &[Subject], lines: &[Line]) -> Result<Vec<Bisection>> {
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
    pub fn min_excess(&self) -> Option<f64> {
        self.enough.map(|(enough, _)| self.excess_over(enough))
    }

    /// Maximum of the bound over the boundary, less one. The boundary is above the memory that was not enough.
    pub fn max_excess(&self) -> Option<f64> {
        self.too_little.map(|failed| self.excess_over(failed))
    }

    fn excess_over(&self, free: Bytes) -> f64 {
        self.bound.0 as f64 / free.0 as f64 - 1.0
    }

    /// Returns true if the bound meets [`BOUNDARY_GOAL`]; `None` if the goal is between minimum and maximum.
    pub fn is_close(&self) -> Option<bool> {
        match (self.min_excess(), self.max_excess()) {
            (Some(min), _) if min > BOUNDARY_GOAL => Some(false),
            (_, Some(max)) if max <= BOUNDARY_GOAL => Some(true),
            _ => None,
        }
    }

    /// Formats the range of the bound over the boundary.
    pub fn range(&self) -> String {
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
pub fn extremes(all: &[Bisection]) -> [String; 2] {
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
pub fn boundary_section(all: &[Bisection]) -> String {
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
pub fn failed(lines: &[Line]) -> String {
    format!("{} of {}", lines.iter().filter(|line| !ran(line)).count(), lines.len())
}

/// Formats all runs.
pub fn confirmed(lines: &[Line]) -> String {
    let row = |line: &Line| {
        let (split, reserved) = (format!("{} x {}", line.accumulate, line.batch), or_dash(line.reserved(), mib));
        let free = or_dash(line.free_mib, |free| free.to_string());
        cells![line.model, line.mode(), free, split, reserved, if ran(line) { "ran" } else { "failed" }]
    };
    table(["model", "mode", "free, MiB", "planned", "pools reserved, MiB", ""], lines.iter().map(row))
}
