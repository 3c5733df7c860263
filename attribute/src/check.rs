//! From the model to the plan's input, or every mistake in the model.

mod attribute;
mod fields;
mod values;

use std::collections::BTreeMap;
use std::path::Path;

use gpu_tuned_core::plan::{Misfit, PlanError};
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Goal, Setting, SettingValue};
use gpu_tuned_project::compile::{CompileError, Compiled, compile};
use gpu_tuned_project::resolved::Resolved;
use proc_macro2::{Ident, TokenStream};
use syn::{Data, Fields, Member};

use crate::model::{Helper, Mistakes, Model};
pub use fields::peer_default;

/// The resolved table of the user's build script, as the attribute finds it.
pub enum Table {
    /// The package has no build script.
    Absent,
    /// The table that the build script wrote.
    Resolved(Box<Resolved>),
    /// The reason why the table cannot be read, and the remedy.
    Broken(String),
}

impl Table {
    /// Reads the table at this path; `None` for a package without a build script. The table of another package is as none.
    pub fn read(path: Option<&Path>, package: Option<&str>) -> Self {
        let Some(path) = path else { return Self::Absent };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                return Self::Broken(format!(
                    "cannot read the build script's table `{}`: {error}; save build.rs, and build again",
                    path.display()
                ));
            }
        };
        match Resolved::from_toml(&text) {
            Ok(resolved) if package.is_some_and(|package| !resolved.is_of(package)) => Self::Absent,
            Ok(resolved) => Self::Resolved(Box::new(resolved)),
            Err(error) => Self::Broken(error.to_string()),
        }
    }
}

/// A model without mistakes: the input of its plan.
pub struct PlanInput {
    /// The profiles and the selection.
    pub resolved: Resolved,
    /// True if a build script wrote the table.
    pub has_build_script: bool,
    /// The attribute's goal over the table's.
    pub goal: Goal,
    /// The workload's name in `gpu-tuned.toml`, if the attribute names one.
    pub name: Option<String>,
    /// The workload with the fields' defaults.
    pub spec: WorkloadSpec,
    /// The field with the global batch, if there is one.
    pub global_batch: Option<Ident>,
    /// The role of each field, in the order of the model's fields.
    pub roles: Vec<Role>,
    /// The tokens of each goal key.
    places: Places,
}

/// The plan's input with the plans of a build.
pub struct Checked {
    /// The plan's input.
    pub input: PlanInput,
    /// A warning about measurements of other dimensions.
    pub outdated: Option<String>,
    /// The plan for the selected targets.
    pub compiled: Compiled,
}

/// A dimension in a field's own struct.
pub struct NestedDim {
    /// The dimension's name.
    pub name: &'static str,
    /// The path from the field.
    pub path: Vec<Member>,
    /// True for a flag, false for a count.
    pub is_flag: bool,
    /// The value in the build's plan.
    pub default: TokenStream,
}

/// The role of a field.
pub enum Role {
    /// A setting: the plan gives the value.
    Tuned(Setting),
    /// A dimension of the workload.
    Dimension {
        /// The dimension's name.
        name: &'static str,
        /// The value in the build's plan.
        default: TokenStream,
    },
    /// A struct with dimensions in its own fields.
    Nested {
        /// The dimensions.
        dims: Vec<NestedDim>,
        /// The value in `Default::default`, if one is given.
        default: Option<TokenStream>,
    },
    /// The user's own field, with the value in `Default::default` if one is given.
    Untouched(Option<TokenStream>),
}

/// The tokens of each goal key, for mistakes of the plan.
type Places = BTreeMap<&'static str, TokenStream>;

/// Checks the model and returns the input of its plan; `None` with mistakes.
pub fn plan_input(model: &Model, table: Table, mistakes: &mut Mistakes) -> Option<PlanInput> {
    check_item(model, mistakes);
    let arguments = attribute::check(model, table, mistakes);
    let (roles, dims) = fields::check(model, &arguments, mistakes);
    let spec = arguments.spec(dims, mistakes);
    if mistakes.is_empty() { arguments.into_input(spec?, roles) } else { None }
}

/// Checks the model and plans for the targets of the build; `None` with mistakes.
pub fn check(model: &Model, table: Table, mistakes: &mut Mistakes) -> Option<Checked> {
    let input = plan_input(model, table, mistakes)?;
    let PlanInput { resolved, goal, name, spec, roles, .. } = &input;
    let workload = resolved.workload(name.as_deref(), spec);
    let compiled = match compile(resolved, &workload, goal) {
        Ok(compiled) => compiled,
        Err(error) => {
            report(&error, model, &input, mistakes);
            return None;
        }
    };
    for (field, role) in model.fields.iter().zip(roles) {
        let Role::Tuned(setting) = role else { continue };
        if let SettingValue::Count(count) = compiled.plan.settings.get(*setting) {
            fields::check_range(field, count, mistakes);
        }
    }
    if !mistakes.is_empty() {
        return None;
    }
    let outdated = resolved.measured.measured_before(name.as_deref(), spec).map(|before| before.to_string());
    Some(Checked { input, outdated, compiled })
}

/// Checks the item itself: a struct with named fields, above its derives, without a `Default` of its own.
fn check_item(model: &Model, mistakes: &mut Mistakes) {
    if let Some(found) = other_than_named_struct(&model.item.data) {
        mistakes
            .at(&model.item.ident, format!("`#[gpu_tuned]` needs a struct with named fields, this is {found}"))
            .help("put the settings into a config struct, such as `struct Config { #[tuned] batch_size: usize }`");
        return;
    }
    if !model.derives.any {
        mistakes
            .at(TokenStream::new(), "`#[gpu_tuned]` must stand above `#[derive(…)]`, there is no derive below it")
            .help("move it above: derives have to see the defaults that it writes")
            .help("a struct without derives needs one, such as `#[derive(Clone, Debug)]`");
    }
    if let Some(default) = model.derives.default.as_ref().filter(|_| !model.derives.config.is_always()) {
        mistakes
            .at(default, "`#[gpu_tuned]` implements `Default` with the tuned values; deriving it too is a conflict")
            .help(
                "remove `Default` from the derive; `#[tuned(default = …)]` gives other fields a default of their own",
            );
    }
    let mut helpers = model.fields.iter().flat_map(|field| &field.helpers);
    // With the global batch in a field, the session applies all settings.
    let has_global_batch = attribute::global_batch_field(&model.arguments).is_some();
    if !helpers.any(Helper::is_planned) && !has_global_batch && mistakes.is_empty() {
        mistakes
            .at(&model.item.ident, format!("no field of `{}` is tuned", model.item.ident))
            .help("mark the fields that the build should fill: `#[tuned] batch_size: usize`");
    }
}

fn other_than_named_struct(data: &Data) -> Option<&'static str> {
    match data {
        Data::Struct(data) => match data.fields {
            Fields::Named(_) => None,
            Fields::Unnamed(_) => Some("a tuple struct"),
            Fields::Unit => Some("a struct without fields"),
        },
        Data::Enum(_) => Some("an enum"),
        Data::Union(_) => Some("a union"),
    }
}

/// Reports the mistakes that only the plan can find.
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
