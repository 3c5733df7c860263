//! With how little free memory a step still ran, and what its plan asks for.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use gpu_tuned_core::Bytes;

use super::data::Line;
use super::figures::{difference, mib, or_dash, three_digits};
use super::subject::{Run, Subject};

/// A run that was bisected.
pub(super) struct Bisected {
    pub model: String,
    pub run: Run,
    /// The least that was enough, and samples per second with it.
    pub enough: Option<(Bytes, Option<f64>)>,
    /// The most that was not.
    pub too_little: Option<Bytes>,
    /// What the plan asks for.
    pub bound: Bytes,
}

/// How far the bound may lie above.
const GOAL: f64 = 0.03;

/// Every run that was bisected.
pub(super) fn all(subjects: &[Subject], lines: &[Line]) -> Result<Vec<Bisected>> {
    let mut found = Vec::new();
    for subject in subjects {
        let mut tries: BTreeMap<Run, Vec<&Line>> = BTreeMap::new();
        for line in lines.iter().filter(|line| line.model == subject.name && line.way == "boundary") {
            tries.entry(Run::of(line)).or_default().push(line);
        }
        for (run, tries) in tries {
            let need = subject.need(run)?;
            let outcome = |ok: bool| {
                let with = tries.iter().filter(move |line| line.ok == Some(ok));
                with.filter_map(|line| Some((Bytes::from_mib(line.free_mib?), line.samples_per_second)))
            };
            found.push(Bisected {
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

impl Bisected {
    /// How far the bound lies above the boundary at least, as a share: that is no more than what was enough.
    pub(super) fn least_above(&self) -> Option<f64> {
        self.enough.map(|(enough, _)| self.above(enough))
    }

    /// How far at most: the boundary is more than what was not enough.
    pub(super) fn most_above(&self) -> Option<f64> {
        self.too_little.map(|failed| self.above(failed))
    }

    fn above(&self, free: Bytes) -> f64 {
        self.bound.0 as f64 / free.0 as f64 - 1.0
    }

    /// Whether it lies no farther above than the goal; `None` where that is not known.
    pub(super) fn is_close(&self) -> Option<bool> {
        match (self.least_above(), self.most_above()) {
            (Some(least), _) if least > GOAL => Some(false),
            (_, Some(most)) if most <= GOAL => Some(true),
            _ => None,
        }
    }

    /// Between which shares the bound lies above the boundary.
    pub(super) fn range(&self) -> String {
        format!("{} to {}", or_dash(self.least_above(), difference), or_dash(self.most_above(), difference))
    }

    /// What that says of the bound.
    fn verdict(&self) -> &'static str {
        match (self.too_little, self.enough, self.is_close()) {
            (Some(failed), ..) if self.bound <= failed => "below it",
            (_, None, _) => "nothing ran",
            (_, Some((enough, _)), _) if self.bound < enough => "within the bisection",
            (.., Some(true)) => "held",
            (.., Some(false)) => "held, by more than the goal",
            (.., None) => "held; the goal lies between",
        }
    }
}

/// Of the run whose bound lies least above the boundary, and of the one whose bound may lie most above, how far.
pub(super) fn ends(all: &[Bisected]) -> [String; 2] {
    let at_most = |run: &Bisected| run.most_above().or(run.least_above());
    let compared = |a: Option<f64>, b: Option<f64>| a.partial_cmp(&b).unwrap_or(Ordering::Equal);
    let lowest = all.iter().min_by(|a, b| compared(a.least_above(), b.least_above()));
    let highest = all.iter().max_by(|a, b| compared(at_most(a), at_most(b)));
    let open = |run: &Bisected| if run.is_close().is_none() { ": the goal lies between" } else { "" };
    [
        or_dash(lowest, |run| format!("{} ({})", run.range(), run.model)),
        or_dash(highest, |run| format!("{} ({}){}", run.range(), run.model, open(run))),
    ]
}

/// The section about them.
pub(super) fn section(text: &mut String, all: &[Bisected]) -> Result<()> {
    text.push_str(
        "\n## The boundary\n\nAnother process held memory, and the free rest was bisected. The bound is what the plan asks \
         for, without headroom and without batches prepared ahead, which these runs do not have. It is not to be below \
         the boundary, and at most 3% above. The boundary lies between what failed and what ran, so that how far the bound \
         lies above it has two ends, too: `above` has the one of what ran, then that of what failed.\n",
    );
    if all.is_empty() {
        text.push_str("\nNot measured yet.\n");
        return Ok(());
    }
    text.push_str(
        "\n| model | mode | batch | failed with, MiB | ran with, MiB | samples/s there | bound, MiB | above | |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for bisected in all {
        let Bisected { model, run, enough, too_little, bound } = bisected;
        let speed = or_dash(enough.and_then(|(_, speed)| speed), three_digits);
        writeln!(
            text,
            "| {model} | {} | {} | {} | {} | {speed} | {} | {} | {} |",
            run.mode,
            run.batch,
            or_dash(*too_little, mib),
            or_dash(enough.map(|(free, _)| free), mib),
            mib(*bound),
            bisected.range(),
            bisected.verdict(),
        )?;
    }
    Ok(())
}
