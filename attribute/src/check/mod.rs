//! From the model to the plan's input, or every mistake in the model.

mod attribute;
mod defaults;
mod dims;
mod fields;
mod global_batch;
mod item;
mod nested;
mod planned;
mod values;

use std::collections::BTreeMap;

use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Goal, Setting};
use gpu_tuned_project::compile::Compiled;
use gpu_tuned_project::resolved::Resolved;
use proc_macro2::{Ident, TokenStream};
use syn::Member;

use crate::mistakes::Mistakes;
use crate::model::Model;
use crate::table::Table;
pub use defaults::peer_default;

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
    item::check(model, mistakes);
    let arguments = attribute::check(model, table, mistakes);
    let (roles, dims) = fields::check(model, &arguments, mistakes);
    let spec = arguments.spec(dims, mistakes);
    if mistakes.is_empty() { arguments.into_input(spec?, roles) } else { None }
}

/// Checks the model and plans for the targets of the build; `None` with mistakes.
pub fn check(model: &Model, table: Table, mistakes: &mut Mistakes) -> Option<Checked> {
    let input = plan_input(model, table, mistakes)?;
    planned::check(model, input, mistakes)
}
