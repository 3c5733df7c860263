//! Predicted against reserved memory at sizes that are not in the lock.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use gpu_tuned_core::Bytes;

use super::data::{Line, Results};
use super::figures::{difference, median, mib, most, or_dash, percent, percentile};
use super::pairs::Pairs;
use super::subject::{Run, Subject, need};

/// One run of one model.
pub(super) struct HeldOut {
    model: String,
    run: Run,
    is_executed: bool,
    observed: Bytes,
    predicted: Bytes,
    bound: Bytes,
    /// By what the CPU told.
    by_cpu: Option<Bytes>,
}

/// What was not compared, and why.
#[derive(Default)]
pub(super) struct LeftOut {
    measured: usize,
    other_modes: usize,
    out_of_memory: usize,
    failed: usize,
}

/// Predictions and observations, by model, run and way.
#[derive(Default)]
pub(super) struct Comparison {
    pub all: Vec<HeldOut>,
    pub left_out: LeftOut,
    /// Of pairs of steps, executed and dry, whose kernels need not be those of the lock.
    pub in_pairs: Vec<HeldOut>,
    pairs: Pairs,
}

/// Goals of the median and the 95th percentile of simulated memory, as fractions.
pub(crate) const FROM_CPU: (f64, f64) = (0.05, 0.15);

/// Bytes from which errors are also summarised alone: an eighth of the smallest GPU that trains.
const MATTERS: Bytes = Bytes::from_mib(1024);

/// Returns true if at least [`MATTERS`] was observed.
pub(super) fn matters(held: &HeldOut) -> bool {
    held.observed >= MATTERS
}

impl Comparison {
    pub(super) fn of(subjects: &[Subject], results: &Results) -> Result<Self> {
        let (mut all, mut in_pairs, mut left_out) = (Vec::new(), Vec::new(), LeftOut::default());
        for subject in subjects {
            all.extend(left_out.held_out(subject, results.traced().chain(&results.confirmed))?);
            in_pairs.extend(LeftOut::default().held_out(subject, results.pairs.iter())?);
        }
        Ok(Self { all, left_out, in_pairs, pairs: Pairs::of(results) })
    }

    /// Errors of those that pass, as shares.
    pub(super) fn errors(&self, passes: impl Fn(&HeldOut) -> bool) -> Vec<f64> {
        self.all.iter().filter(|held| passes(held)).map(|held| held.error().abs()).collect()
    }

    /// How many took more than the bound.
    pub(super) fn exceeded(&self) -> String {
        exceeded(&self.all)
    }

    /// The same of pairs.
    pub(super) fn exceeded_in_pairs(&self) -> String {
        exceeded(&self.in_pairs)
    }

    pub(super) fn section(&self, text: &mut String) -> Result<()> {
        text.push_str(
            "\n## Memory\n\nBytes that the memory pools reserved at most in any step, at sizes that are not in the lock, against the line \
             between measured neighbours. An error is predicted over observed, less one. The bound is the prediction with the \
             margin that a plan adds. `executed` ran the steps, `dry` ran them without their kernels. Runs beside a process \
             that held memory are among them, where their size is not in the lock. Up to 8 MiB left by another thread at device \
             start-up are excluded.\n\
             \n| | runs | median error | 95th percentile | largest | above the bound |\n|---|---|---|---|---|---|\n",
        );
        summary(text, "all", &self.all, |_| true)?;
        summary(text, "of 1 GiB and more", &self.all, matters)?;
        summary(text, "executed", &self.all, |held| held.is_executed)?;
        summary(text, "dry", &self.all, |held| !held.is_executed)?;
        summary(text, "accumulating, or with batches waiting", &self.all, |held| !held.is_plain())?;
        summary(
            text,
            "of [pairs](../tests/hardware/results/README.md), some with other kernels than the lock's",
            &self.in_pairs,
            |_| true,
        )?;
        summary(text, "the same, of 1 GiB and more", &self.in_pairs, matters)?;
        summary(text, "the same, accumulating, or with batches waiting", &self.in_pairs, |held| !held.is_plain())?;
        text.push_str("| goal | | | | | 0 |\n");
        self.cpu_summary(text)?;
        if self.all.iter().all(|held| held.by_cpu.is_none()) {
            text.push_str(WITHOUT_GPU);
        }
        self.left_out.note(text)?;
        self.pairs.note(text)?;
        let mut models: Vec<&str> = self.all.iter().map(|held| held.model.as_str()).collect();
        models.dedup();
        for model in models {
            details(text, model, self.all.iter().filter(|held| held.model == model).collect())?;
        }
        let mut models: Vec<&str> = self.in_pairs.iter().map(|held| held.model.as_str()).collect();
        models.dedup();
        for model in models {
            let held = self.in_pairs.iter().filter(|held| held.model == model).collect();
            details(text, &format!("{model}, pairs"), held)?;
        }
        Ok(())
    }

    fn cpu_summary(&self, text: &mut String) -> Result<()> {
        let errors: Vec<f64> = self.all.iter().filter_map(|held| Some(held.error_by_cpu()?.abs())).collect();
        if errors.is_empty() {
            return Ok(());
        }
        let shares = [median(&errors), percentile(&errors, 0.95), most(&errors)].map(|it| or_dash(it, percent));
        let [median, tail, largest] = shares;
        writeln!(text, "| without a GPU, by what the CPU told | {} | {median} | {tail} | {largest} | |", errors.len())?;
        writeln!(text, "| goal without a GPU | | {} | {} | | |", percent(FROM_CPU.0), percent(FROM_CPU.1))?;
        Ok(())
    }
}

fn summary(text: &mut String, what: &str, all: &[HeldOut], passes: impl Fn(&HeldOut) -> bool) -> Result<()> {
    let passing: Vec<_> = all.iter().filter(|held| passes(held)).collect();
    if passing.is_empty() {
        return Ok(());
    }
    let errors: Vec<f64> = passing.iter().map(|held| held.error().abs()).collect();
    let shares = [median(&errors), percentile(&errors, 0.95), most(&errors)].map(|it| or_dash(it, percent));
    let [median, tail, largest] = shares;
    let exceeded = passing.iter().filter(|held| held.beyond().is_some()).count();
    writeln!(text, "| {what} | {} | {median} | {tail} | {largest} | {exceeded} |", errors.len())?;
    Ok(())
}

/// How many took more than the bound, and by how much at most.
fn exceeded(all: &[HeldOut]) -> String {
    if all.is_empty() {
        return "-".to_owned();
    }
    let beyond: Vec<f64> = all.iter().filter_map(HeldOut::beyond).collect();
    let at_most = most(&beyond).map_or_else(String::new, |most| format!(", by at most {}", percent(most)));
    format!("{} of {}{at_most}", beyond.len(), all.len())
}

fn details(text: &mut String, what: &str, held: Vec<&HeldOut>) -> Result<()> {
    writeln!(text, "\n<details><summary>{what}: {} runs</summary>\n", held.len())?;
    let has_cpu = held.iter().any(|held| held.by_cpu.is_some());
    text.push_str("| mode | step | way | observed, MiB | predicted, MiB | error | bound, MiB |");
    text.push_str(if has_cpu { " error without a GPU |\n" } else { "\n" });
    text.push_str("|---|---|---|---|---|---|---|");
    text.push_str(if has_cpu { "---|\n" } else { "\n" });
    for held in held {
        held.row(text)?;
        let by_cpu = or_dash(held.error_by_cpu(), difference);
        writeln!(text, "{}", if has_cpu { format!(" {by_cpu} |") } else { String::new() })?;
    }
    text.push_str("\n</details>\n");
    Ok(())
}

impl HeldOut {
    fn of(subject: &Subject, run: Run, is_executed: bool, observed: Bytes) -> Result<Self> {
        let predicted = subject.need(run)?;
        let on_cpu = subject
            .on_cpu
            .as_ref()
            .filter(|workload| workload.measured.on.values().any(|on| on.mode.contains_key(&run.mode)));
        Ok(Self {
            model: subject.name.to_owned(),
            run,
            is_executed,
            observed,
            predicted: predicted.pools,
            bound: predicted.bound(),
            by_cpu: on_cpu.map(|workload| need(subject.device, workload, run)).transpose()?.map(|need| need.pools),
        })
    }

    pub(super) fn error(&self) -> f64 {
        self.predicted.0 as f64 / self.observed.0 as f64 - 1.0
    }

    /// What it took beyond the bound, as a share of that.
    fn beyond(&self) -> Option<f64> {
        (self.observed > self.bound).then(|| self.observed.0 as f64 / self.bound.0 as f64 - 1.0)
    }

    fn error_by_cpu(&self) -> Option<f64> {
        self.by_cpu.map(|predicted| predicted.0 as f64 / self.observed.0 as f64 - 1.0)
    }

    const fn is_plain(&self) -> bool {
        self.run.accumulate == 1 && self.run.queue == 0
    }

    fn row(&self, text: &mut String) -> Result<()> {
        let (mode, step) = (self.run.mode, self.run.step());
        let way = if self.is_executed { "executed" } else { "dry" };
        let over = if self.beyond().is_some() { " (exceeded)" } else { "" };
        let [observed, predicted, bound] = [self.observed, self.predicted, self.bound].map(mib);
        let error = difference(self.error());
        write!(text, "| {mode} | {step} | {way} | {observed} | {predicted} | {error} | {bound}{over} |")?;
        Ok(())
    }
}

impl LeftOut {
    /// The lines of a model that can be compared, the most of equal runs; counts the others.
    fn held_out<'l>(&mut self, subject: &Subject, lines: impl Iterator<Item = &'l Line>) -> Result<Vec<HeldOut>> {
        let mut observed: BTreeMap<(Run, bool), Bytes> = BTreeMap::new();
        for line in lines.filter(|line| line.model == subject.name) {
            let Some(is_executed) = line.was_executed() else { continue };
            let run = Run::of(line);
            match line.reserved() {
                _ if !subject.has(run.mode) => self.other_modes += 1,
                _ if subject.is_measured(run.mode, run.batch) => self.measured += 1,
                None if line.out_of_memory => self.out_of_memory += 1,
                None => self.failed += 1,
                Some(bytes) => {
                    let most = observed.entry((run, !is_executed)).or_default();
                    *most = bytes.max(*most);
                }
            }
        }
        let of = |((run, is_dry), observed): ((Run, bool), Bytes)| HeldOut::of(subject, run, !is_dry, observed);
        observed.into_iter().map(of).collect()
    }

    fn note(&self, text: &mut String) -> Result<()> {
        let counts = [
            (self.measured, "at measured micro-batches (below)"),
            (self.other_modes, "in modes that the lock has not"),
            (self.out_of_memory, "ran out of memory"),
            (self.failed, "failed otherwise"),
        ];
        let said: Vec<_> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}")).collect();
        if !said.is_empty() {
            writeln!(text, "\nRuns that are not compared: {}.", said.join(", "))?;
        }
        Ok(())
    }
}

const WITHOUT_GPU: &str = "
The lock has nothing that was replayed from a CPU; what that is worth without a GPU, is in
[another report](../tests/models/REPLAYED.md).
";
