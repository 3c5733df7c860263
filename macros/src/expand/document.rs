//! What rustdoc shows of the build.

use core::fmt::Write;

use gpu_tuned_core::plan::{Misfit, Plan, PlanError, Remedy};
use gpu_tuned_core::{Setting, Settings};

use crate::check::{Checked, Role};
use crate::model::Model;

/// Which target the values are for, and those of every declared target.
pub(super) fn document(model: &Model, checked: &Checked) -> String {
    let compiled = &checked.compiled;
    let mut text = format!("\n# Tuned for `{}`\n\n", compiled.target);
    for misfit in &compiled.misfits {
        line(&mut text, &format!("`{}` is selected too, but {}.\n", misfit.device, why_not(misfit)));
    }
    if let Some(outdated) = &checked.outdated {
        line(&mut text, &format!("{outdated}.\n"));
    }
    let tuned = settings(model, checked);
    if tuned.is_empty() {
        return text;
    }
    let cells = |values: &Settings| row(tuned.iter().map(|setting| setting.of(values).to_string()));
    line(&mut text, &format!("| target |{}", row(tuned.iter().map(|setting| format!("`{setting}`")))));
    line(&mut text, &format!("|---|{}", "---|".repeat(tuned.len())));
    if !checked.declared.iter().any(|(id, _)| id.as_str() == compiled.target) {
        line(&mut text, &format!("| `{}` |{}", compiled.target, cells(&compiled.plan.settings)));
    }
    for (id, plan) in &checked.declared {
        let values = match plan {
            Ok(Plan { settings, .. }) => cells(settings),
            Err(error) => format!(" {} |{}", in_words(error), " |".repeat(tuned.len() - 1)),
        };
        line(&mut text, &format!("| `{id}` |{values}"));
    }
    text
}

fn why_not(misfit: &Misfit) -> &'static str {
    match misfit.remedy {
        // What was fixed is the plan of the others.
        Remedy::Unpin | Remedy::Checkpointing => "no plan fits it and the others",
        _ => "cannot hold the workload",
    }
}

fn in_words(error: &PlanError) -> String {
    match error {
        PlanError::DoesNotFit(_) => "does not fit".to_owned(),
        other => other.to_string(),
    }
}

/// The settings that the struct has fields for, in the order of reports.
fn settings(model: &Model, checked: &Checked) -> Vec<Setting> {
    let has = |setting: &Setting| {
        let is = |role: &Role| matches!(role, Role::Tuned(tuned) if tuned == setting);
        model.fields.iter().zip(&checked.roles).any(|(_, role)| is(role))
    };
    Setting::ALL.into_iter().filter(has).collect()
}

fn row(cells: impl Iterator<Item = String>) -> String {
    cells.flat_map(|cell| [" ".to_owned(), cell, " |".to_owned()]).collect()
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("BUG: a String takes every text");
}
