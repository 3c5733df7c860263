//! The arguments of `#[gpu_tuned(…)]`, and the global batch in a field of the config: `global_batch = batch_size`.

use gpu_tuned_core::dims::{self, DimValue, Schema};
use gpu_tuned_core::profile::{ProfileId, ProfileNames};
use gpu_tuned_core::workload::{ModelKind, WorkloadSpec};
use gpu_tuned_core::{Goal, PrecisionPolicy, Setting, SettingKind, suggest};
use gpu_tuned_project::resolved::Resolved;
use proc_macro2::{Ident, TokenStream};
use syn::ext::IdentExt;
use syn::{LitStr, parse2};

use super::values::Dims;
use super::{Places, PlanInput, Role, Table, fields, values};
use crate::model::{
    Argument, DefaultForm, Field, Mistakes, Model, Value, attribute_keys, check_keys, find, model_keys,
};
use crate::parse::crate_path;

const BUILD_SCRIPT: &str = "add gpu-tuned-build to [build-dependencies], and a build.rs with \
                            `fn main() { gpu_tuned_build::configure().emit() }`";

/// The checked arguments of the attribute.
pub(super) struct AttributeArgs<'m> {
    /// The table, if there is a usable one.
    pub resolved: Option<Resolved>,
    pub has_build_script: bool,
    pub goal: Goal,
    pub places: Places,
    /// The field with the global batch, if there is one.
    pub global_batch: Option<Ident>,
    pub workload: Option<WorkloadSource<'m>>,
}

/// The source of the workload.
pub(super) enum WorkloadSource<'m> {
    /// A workload of `gpu-tuned.toml`, by name; without a spec if there is no such workload.
    Named { name: Option<String>, spec: Option<Box<WorkloadSpec>> },
    /// Dimensions in the attribute and in fields.
    Family {
        /// The family's name, such as `transformer`.
        name: &'m Argument,
        kind: &'static ModelKind,
        given: &'m [Argument],
    },
}

pub(super) fn check<'m>(model: &'m Model, table: Table, mistakes: &mut Mistakes) -> AttributeArgs<'m> {
    let arguments = &model.arguments[..];
    let before = mistakes.len();
    check_keys(arguments, "#[gpu_tuned]", &attribute_keys(), mistakes);
    let is_plain = mistakes.len() == before;
    check_crate(arguments, mistakes);
    let has_build_script = !matches!(table, Table::Absent);
    let resolved = resolve(arguments, table, mistakes);
    let global_batch = global_batch_field(arguments);
    let (goal, places) = goal(model, global_batch.as_ref(), resolved.as_ref(), mistakes);
    let given: Vec<_> = arguments.iter().filter(|it| model_keys().any(|name| it.key == name)).collect();
    let workload = match given.as_slice() {
        // A misspelled key may be the workload.
        [] if !is_plain || !model.has_valid_arguments => None,
        [] => {
            mistakes
                .at(TokenStream::new(), "`#[gpu_tuned]` needs the cost of a training step")
                .help(format!(
                    "name a workload of {}: `workload = \"…\"`",
                    resolved.as_ref().map_or("gpu-tuned.toml", Resolved::file)
                ))
                .help(format!("or describe the model: {}", ModelKind::list()));
            None
        }
        [first, others @ ..] => {
            for other in others.iter().filter(|other| other.key != first.key) {
                mistakes
                    .at(&other.key, format!("`{}` and `{}` both describe the cost of a step", first.key, other.key));
            }
            source(first, resolved.as_ref(), has_build_script, mistakes)
        }
    };
    AttributeArgs { resolved, has_build_script, goal, places, global_batch, workload }
}

/// Reports a `crate` that is no path.
fn check_crate(arguments: &[Argument], mistakes: &mut Mistakes) {
    let Some(argument) = find(arguments, "crate") else { return };
    if !matches!(&argument.value, Value::Is(tokens) if crate_path(tokens).is_some()) {
        mistakes
            .at(argument.place(), "`crate` takes the path of gpu-tuned in this package")
            .help("write `crate = path`, such as `crate = my_facade::gpu_tuned`");
    }
}

fn resolve(arguments: &[Argument], table: Table, mistakes: &mut Mistakes) -> Option<Resolved> {
    let target = find(arguments, "target");
    match (table, target) {
        (Table::Broken(why), _) => {
            mistakes.at(TokenStream::new(), why);
            None
        }
        (Table::Resolved(resolved), None) => Some(*resolved),
        (Table::Resolved(resolved), Some(target)) => {
            mistakes
                .at(target, "`target` is for packages without a build script; in this one features name the target")
                .help("remove it, and build with `--features h200` or GPU_TUNED_TARGET=h200");
            Some(*resolved)
        }
        (Table::Absent, Some(target)) => {
            let id = values::text(target, mistakes)?;
            let resolved = Resolved::from_builtin(&id);
            if resolved.is_none() {
                let near = ProfileNames::new(&[]).suggest(&id).unwrap_or_default();
                mistakes
                    .at(target.place(), format!("there is no GPU profile `{id}`{near}"))
                    .help("the profiles are named as in `rtx4090`, `a100-sxm4-80gb`; `generic` is the conservative profile")
                    .help("own profiles are for gpu-tuned.toml and need the build script");
            }
            resolved
        }
        (Table::Absent, None) => {
            mistakes
                .at(TokenStream::new(), "`#[gpu_tuned]` has no target: no build script with gpu-tuned-build has run")
                .help(BUILD_SCRIPT)
                .help(format!("or name the GPU here: `target = \"rtx4090\"`, or \"{}\"", ProfileId::GENERIC));
            None
        }
    }
}

/// Keys of the attribute, each with the keys of the file that it replaces.
const REPLACED: [(&str, &[&str]); 3] = [
    ("global_batch", &["global_tokens", "mean_tokens"]),
    ("global_tokens", &["global_batch"]),
    ("throughput_tolerance", &["target_utilization"]),
];

/// The table's goal with the attribute's values over it.
fn goal(
    model: &Model,
    global_batch: Option<&Ident>,
    resolved: Option<&Resolved>,
    mistakes: &mut Mistakes,
) -> (Goal, Places) {
    let mut goal = resolved.map(|resolved| resolved.goal.clone()).unwrap_or_default();
    let mut places = Places::new();
    let mut values = goal.values();
    let is_asked = |name: &str| model.arguments.iter().any(|argument| argument.name() == name);
    for (_, others) in REPLACED.iter().filter(|(name, _)| is_asked(name)) {
        values.retain(|name, _| !others.contains(name));
    }
    for argument in &model.arguments {
        let Some(dim) = dims::named(Goal::DIMS, &argument.name()) else { continue };
        let value = match global_batch.filter(|_| dim.name == GLOBAL_BATCH) {
            Some(field) => read_global_batch(model, field, mistakes).map(DimValue::Count),
            None => values::dim(&dim.kind, argument, mistakes),
        };
        values.extend(value.map(|value| (dim.name, value)));
        places.insert(dim.name, argument.place());
    }
    goal = Goal::from_values(&values);
    for (key, message) in goal.mistakes() {
        mistakes.at(places.get(key).cloned().unwrap_or_default(), message);
    }
    (goal, places)
}

fn source<'m>(
    argument: &'m Argument,
    resolved: Option<&Resolved>,
    has_build_script: bool,
    mistakes: &mut Mistakes,
) -> Option<WorkloadSource<'m>> {
    if let Some(kind) = ModelKind::named(&argument.name()) {
        if let Value::List(given) = &argument.value {
            return Some(WorkloadSource::Family { name: argument, kind, given });
        }
        let first = kind.dims[0].name;
        mistakes.at(argument.place(), format!("`{0}` takes dimensions: `{0}({first} = …)`", argument.key));
        return None;
    }
    let name = values::text(argument, mistakes);
    let (Some(name), Some(resolved)) = (name, resolved) else {
        return Some(WorkloadSource::Named { name: None, spec: None });
    };
    let found = resolved.workload.get(&name).cloned().map(Box::new);
    if !has_build_script {
        mistakes
            .at(argument.place(), "workloads have names in gpu-tuned.toml only, which needs the build script")
            .help(BUILD_SCRIPT)
            .help("or give the model's dimensions: `transformer(…)` or `convnet(…)`");
    } else if found.is_none() {
        let known: Vec<_> = resolved.workload.keys().map(String::as_str).collect();
        let near = suggest(&name, known.iter().copied());
        let mistake = mistakes.at(argument.place(), format!("{} has no workload `{name}`{near}", resolved.file()));
        match known.as_slice() {
            [] => mistake.help(format!("it has none yet: add [workload.{name}]")),
            known => mistake.help(format!("it has {}", known.join(", "))),
        };
    }
    Some(WorkloadSource::Named { name: Some(name), spec: found })
}

impl AttributeArgs<'_> {
    /// Returns the plan's input; `None` without a usable table.
    pub(super) fn into_input(self, spec: WorkloadSpec, roles: Vec<Role>) -> Option<PlanInput> {
        let name = match self.workload? {
            WorkloadSource::Named { name, .. } => name,
            WorkloadSource::Family { .. } => None,
        };
        let Self { resolved, has_build_script, mut goal, places, global_batch, .. } = self;
        if roles.iter().any(|role| matches!(role, Role::Tuned(Setting::Precision))) {
            goal.precision.get_or_insert(PrecisionPolicy::Auto);
        }
        if roles.iter().any(|role| matches!(role, Role::Tuned(Setting::CudaGraphs))) {
            goal.allow_cuda_graphs.get_or_insert(true);
        }
        Some(PlanInput { resolved: resolved?, has_build_script, goal, name, spec, global_batch, roles, places })
    }

    /// Returns the workload. `dims` are the dimensions of the attribute and of the fields.
    pub(super) fn spec(&self, dims: Dims<'_>, mistakes: &mut Mistakes) -> Option<WorkloadSpec> {
        match self.workload.as_ref()? {
            WorkloadSource::Named { spec, .. } => dims.over(*spec.clone()?, mistakes),
            WorkloadSource::Family { name, kind, .. } => dims.spec(&name.key, kind, mistakes),
        }
    }
}

/// The key that takes a field.
const GLOBAL_BATCH: &str = "global_batch";

/// Returns the name after `global_batch =`. The struct may have no such field.
pub(super) fn global_batch_field(arguments: &[Argument]) -> Option<Ident> {
    match &find(arguments, GLOBAL_BATCH)?.value {
        Value::Is(tokens) => parse2(tokens.clone()).ok(),
        Value::Absent | Value::List(_) | Value::Nested(_) => None,
    }
}

/// Reads the field's default, with which the build plans.
fn read_global_batch(model: &Model, name: &Ident, mistakes: &mut Mistakes) -> Option<u64> {
    let unraw = name.unraw().to_string();
    let Some(field) = model.fields.iter().find(|field| field.name() == unraw) else {
        let names: Vec<_> = model.fields.iter().map(Field::name).collect();
        let near = suggest(&unraw, names.iter().map(String::as_str));
        let mistake = mistakes.at(name, format!("there is no field `{name}`{near}"));
        mistake.help("`global_batch` takes a number, or the field with the samples of an optimizer step");
        if unraw.chars().all(|character| !character.is_lowercase()) {
            mistake.help(values::CONSTANT);
        }
        return None;
    };
    let before = mistakes.len();
    if let Some(helper) = field.helpers.first().filter(|helper| helper.is_planned()) {
        mistakes.at(&helper.path, format!("`{name}` is the global batch, which is not planned")).help(
            "remove `#[tuned]`: micro-batches are planned all the same, and `session.strategy()` cuts steps into them",
        );
        return None;
    }
    fields::check_type(field, SettingKind::Count, "the global batch", mistakes);
    fields::check_is_there(field, mistakes);
    let samples = default_samples(model, field, name, mistakes)?;
    (mistakes.len() == before).then_some(samples)
}

fn default_samples(model: &Model, field: &Field, name: &Ident, mistakes: &mut Mistakes) -> Option<u64> {
    let ours = field.helpers.first().and_then(|helper| find(&helper.arguments, "default"));
    let theirs = field.defaults.iter().find(|default| default.form == DefaultForm::Value);
    let Some(default) = ours.or_else(|| Some(&theirs?.unquoted)) else {
        let attribute = if model.derives.config.is_always() {
            "#[config(default = 64)]"
        } else if model.derives.clap.is_always() {
            "#[arg(default_value_t = 64)]"
        } else {
            "#[tuned(default = 64)]"
        };
        mistakes
            .at(name, format!("`{name}` needs a default: the build plans with it"))
            .help(format!("write `{attribute}` above it, with the samples that an optimizer step has"));
        return None;
    };
    let value = if let Value::Is(tokens) = &default.value { parse_whole(tokens) } else { None };
    if value.is_none() {
        mistakes.at(default.place(), format!("the build plans with the default of `{name}`: expected a whole number"));
    }
    value
}

/// Parses a whole number, in quotes or without.
fn parse_whole(tokens: &TokenStream) -> Option<u64> {
    let bare = parse2::<values::Number>(tokens.clone()).ok().map(|values::Number(count)| count);
    bare.or_else(|| parse2::<LitStr>(tokens.clone()).ok()?.value().parse().ok())
}
