//! The plan, and the mistakes that only the plan can find.

use gpu_tuned_core::SettingValue;
use gpu_tuned_core::plan::{Misfit, PlanError};
use gpu_tuned_project::compile::{CompileError, Compiled, compile};
use proc_macro2::TokenStream;

use super::{Checked, PlanInput, Role, fields};
use crate::mistakes::Mistakes;
use crate::model::Model;

/// Plans for the selected targets.
pub(super) fn check(model: &Model, input: PlanInput, mistakes: &mut Mistakes) -> Option<Checked> {
    let PlanInput { resolved, goal, name, spec, roles, .. } = &input;
    let workload = resolved.workload(name.as_deref(), spec);
    let compiled = match compile(resolved, &workload, goal) {
        Ok(compiled) => compiled,
        Err(error) => {
            report(&error, model, &input, mistakes);
            return None;
        }
    };
    check_ranges(model, roles, &compiled, mistakes);
    if !mistakes.is_empty() {
        return None;
    }
    let outdated = resolved.measured.measured_before(name.as_deref(), spec).map(|before| before.to_string());
    Some(Checked { input, outdated, compiled })
}

fn report(
    error: &CompileError,
    model: &Model,
    PlanInput { resolved, places, .. }: &PlanInput,
    mistakes: &mut Mistakes,
) {
    let error = match error {
        CompileError::NothingFits { reasons } => {
            for reason in reasons {
                if let PlanError::DoesNotFit(misfit) = reason {
                    refuse(misfit, model, mistakes);
                } else {
                    mistakes.at(&model.item.ident, reason);
                }
            }
            return;
        }
        CompileError::Plan(error) => error,
        other => {
            mistakes.at(TokenStream::new(), other);
            return;
        }
    };
    let keys: &[&str] = match error {
        PlanError::WorldSize { .. } => &["world_size", "global_batch"],
        PlanError::PrecisionUnsupported { .. } => &["precision"],
        PlanError::Tokens { .. } => &["global_tokens"],
        PlanError::NoTokens { .. } => &["mean_tokens", "global_tokens"],
        PlanError::DoesNotFit(misfit) => return refuse(misfit, model, mistakes),
        _ => &[],
    };
    match keys.iter().find_map(|key| places.get(key)) {
        Some(place) => mistakes.at(place, error),
        None => {
            mistakes.at(&model.item.ident, error).help(format!("the goal is that of [goal] in {}", resolved.file()))
        }
    };
}

fn refuse(misfit: &Misfit, model: &Model, mistakes: &mut Mistakes) {
    let name = &model.item.ident;
    let mistake = mistakes.at(name, format!("`{name}` {misfit}"));
    for remedy in &misfit.remedies {
        mistake.help(remedy);
    }
}

fn check_ranges(model: &Model, roles: &[Role], compiled: &Compiled, mistakes: &mut Mistakes) {
    for (field, role) in model.fields.iter().zip(roles) {
        let Role::Tuned(setting) = role else { continue };
        if let SettingValue::Count(count) = compiled.plan.settings.get(*setting) {
            fields::check_range(field, count, mistakes);
        }
    }
}
