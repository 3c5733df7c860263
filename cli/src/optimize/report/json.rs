//! For scripts.

use gpu_tuned_core::plan::Filling;
use serde::Serialize;

use super::super::advice::TooSmall;
use super::super::changes::Change;
use super::super::host::Host;
use super::super::keys::Role;
use super::super::model::Dimension;
use super::super::more::More;
use super::super::step::Step;
use super::super::text::Format;
use super::expectation::Expectation;
use super::{Fate, OnTarget, Report};

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    config: &'a str,
    format: Format,
    model: Model<'a>,
    step: Step,
    targets: Vec<Target<'a>>,
    /// Keys that Burn has no counterpart of; they are left alone.
    no_counterpart: Vec<&'a str>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct Model<'a> {
    name: &'a str,
    because: &'a str,
    parameters: u64,
    optimizer: String,
    dims: &'a [Dimension],
}

#[derive(Serialize)]
struct Target<'a> {
    #[serde(rename = "target")]
    name: &'a str,
    host: Host,
    /// The copy; none where the model does not fit.
    file: Option<&'a str>,
    /// Whether this command has written it.
    written: bool,
    /// Whether it has the text of the config, or had its own already.
    unchanged: bool,
    changes: &'a [Change],
    before: Expectation,
    after: Expectation,
    /// Samples per second after over before.
    speedup: Option<f64>,
    filling: Option<Filling>,
    too_small: Option<&'a TooSmall>,
    warnings: &'a [String],
    more: &'a More,
}

impl Report<'_> {
    /// The same for scripts.
    pub(in super::super) fn json(&self, notes: &[String]) -> String {
        let training = self.training;
        let printed = Printed {
            config: &self.file.name,
            format: self.file.format,
            model: Model {
                name: &training.name,
                because: &training.because,
                parameters: training.workload.parameters.trained(),
                optimizer: training.workload.optimizer.to_string(),
                dims: &training.dims,
            },
            step: self.step,
            targets: self.targets.iter().map(|one| self.target(one)).collect(),
            no_counterpart: self.config.found.of(Role::NoCounterpart).map(|found| found.leaf.shown.as_str()).collect(),
            notes,
        };
        format!("{}\n", serde_json::to_string_pretty(&printed).expect("BUG: a report is always JSON"))
    }

    fn target<'a>(&self, one: &'a OnTarget) -> Target<'a> {
        let (before, after) = self.expected(one);
        let fate = one.file.as_ref().map(|file| self.fate(file));
        Target {
            name: &one.target,
            host: one.host,
            file: one.file.as_ref().map(|file| file.name.as_str()),
            written: matches!(fate, Some(Fate::Copied | Fate::Changed)) && !self.args.write.dry_run,
            unchanged: matches!(fate, Some(Fate::Unchanged | Fate::Copied)),
            changes: one.changes.as_ref().map_or(&[], |changes| &changes.all),
            speedup: after.ratio_to(&before).map(|(ratio, _)| ratio),
            before,
            after,
            filling: one.planned.filling,
            too_small: one.too_small.as_ref(),
            warnings: &one.planned.warnings,
            more: &one.planned.more,
        }
    }
}
