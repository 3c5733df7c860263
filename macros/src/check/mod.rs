//! From the model to something that can be expanded, or every mistake in it.

mod attribute;
mod defaults;
mod dims;
mod fields;
mod global_batch;
mod item;
mod keys;
mod nested;
mod planned;
mod values;

use std::collections::BTreeMap;

use gpu_tuned_core::plan::{Plan, PlanError};
use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Goal, Setting};
use gpu_tuned_project::compile::Compiled;
use gpu_tuned_project::resolved::Resolved;
use proc_macro2::{Ident, TokenStream};
use syn::Member;

use crate::error::Mistakes;
use crate::model::Model;
use crate::table::Table;

/// A model without mistakes, and its plan.
pub(crate) struct Checked {
    /// The profiles and what is selected of them.
    pub resolved: Resolved,
    /// Whether a build script resolved them.
    pub has_build_script: bool,
    /// The attribute's goal over the table's.
    pub goal: Goal,
    /// The workload's name in `gpu-tuned.toml`, where it is named.
    pub name: Option<String>,
    /// The workload with the fields' defaults.
    pub spec: WorkloadSpec,
    /// The field that holds the global batch, where one does.
    pub global_batch: Option<Ident>,
    /// What to say of measurements that were of other dimensions.
    pub outdated: Option<String>,
    /// What each field is, in the order of the model's fields.
    pub roles: Vec<Role>,
    /// The plan for what is selected.
    pub compiled: Compiled,
    /// The plan for each declared target on its own.
    pub declared: Vec<(ProfileId, Result<Plan, PlanError>)>,
}

/// What a field is to us.
pub(crate) enum Role {
    /// It gets its value from the plan.
    Tuned(Setting),
    /// It is a dimension of the workload.
    Dimension {
        /// Which one.
        name: &'static str,
        /// Its value in the build's plan.
        default: TokenStream,
        /// Whether another macro's attribute says that already.
        is_declared: bool,
    },
    /// It holds dimensions of the workload in fields of its own.
    Nested {
        /// Which ones, each with the way to it from the field.
        dims: Vec<(&'static str, Vec<Member>)>,
        /// Its value in `Default::default`, where one was given.
        default: Option<TokenStream>,
    },
    /// It is the user's, with a default for `Default::default` where one was given.
    Untouched(Option<TokenStream>),
}

/// The tokens behind each key of the goal, for mistakes that only the plan finds.
type Places = BTreeMap<&'static str, TokenStream>;

/// Judges the model; `None` when there are mistakes.
pub(crate) fn check(model: &Model, table: Table, mistakes: &mut Mistakes) -> Option<Checked> {
    item::check(model, mistakes);
    let asked = attribute::check(model, table, mistakes);
    let (roles, dims) = fields::check(model, &asked, mistakes);
    let spec = asked.spec(dims, mistakes);
    if !mistakes.is_empty() {
        return None;
    }
    planned::check(model, asked, spec?, roles, mistakes)
}
