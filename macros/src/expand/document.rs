//! The documentation of the build's plan.

use core::fmt::Write;

use gpu_tuned_core::plan::{Misfit, Remedy};
use gpu_tuned_core::{Setting, Settings};

use gpu_tuned_attribute::Model;
use gpu_tuned_attribute::{Checked, Role};

/// Formats the build's target and its settings.
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
    let cells = |values: &Settings| row(tuned.iter().map(|setting| values.get(*setting).to_string()));
    line(&mut text, &format!("| target |{}", row(tuned.iter().map(|setting| format!("`{setting}`")))));
    line(&mut text, &format!("|---|{}", "---|".repeat(tuned.len())));
    line(&mut text, &format!("| `{}` |{}", compiled.target, cells(&compiled.plan.settings)));
    let declared = &checked.input.resolved.declared;
    if declared.iter().any(|id| id.as_str() != compiled.target) {
        line(&mut text, &format!("\n`cargo gpu-tuned plan` plans each of the {} declared targets.", declared.len()));
    }
    text
}

fn why_not(misfit: &Misfit) -> &'static str {
    match misfit.remedies[..] {
        // The pinned settings are the plan of the other targets.
        [Remedy::Unpin { .. }, ..] => "no plan fits it and the others",
        _ => "cannot hold the workload",
    }
}

/// Returns the settings among the struct's fields, in the order of reports.
fn settings(model: &Model, checked: &Checked) -> Vec<Setting> {
    let has = |setting: &Setting| {
        let is = |role: &Role| matches!(role, Role::Tuned(tuned) if tuned == setting);
        model.fields.iter().zip(&checked.input.roles).any(|(_, role)| is(role))
    };
    Setting::ALL.into_iter().filter(has).collect()
}

fn row(cells: impl Iterator<Item = String>) -> String {
    cells.flat_map(|cell| [" ".to_owned(), cell, " |".to_owned()]).collect()
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("BUG: a String takes every text");
}
