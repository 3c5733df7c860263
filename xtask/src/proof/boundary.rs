//! With how little free memory a step still ran, and what its plan asks for.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use gpu_tuned_core::Bytes;

use super::data::Line;
use super::figures::{difference, mib, or_dash, three_digits};
use super::subject::{Run, Subject};

/// A run that was bisected.
pub(super) struct Bisected {
    model: String,
    run: Run,
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
    /// How far the bound lies above what was enough, as a share.
    pub(super) fn above(&self) -> Option<f64> {
        self.enough.map(|(enough, _)| self.bound.0 as f64 / enough.0 as f64 - 1.0)
    }

    /// What that says of the bound.
    fn verdict(&self) -> &'static str {
        match (self.too_little, self.above()) {
            (Some(failed), _) if self.bound <= failed => "below it",
            (_, Some(above)) if above < 0.0 => "within the bisection",
            (_, Some(above)) if above <= GOAL => "held",
            (_, Some(_)) => "held, by more than the goal",
            _ => "nothing ran",
        }
    }
}

/// The section about them.
pub(super) fn section(text: &mut String, all: &[Bisected]) -> Result<()> {
    text.push_str(
        "\n## The boundary\n\nAnother process held memory, and the free rest was bisected. The bound is what the plan asks \
         for, without headroom and without batches prepared ahead, which these runs do not have. It is not to be below \
         the boundary, and at most 3% above.\n",
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
            or_dash(bisected.above(), difference),
            bisected.verdict(),
        )?;
    }
    Ok(())
}
