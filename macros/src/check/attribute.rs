//! The attribute's own arguments.

use gpu_tuned_core::profile::{ProfileId, ProfileTable};
use gpu_tuned_core::resolved::Resolved;
use gpu_tuned_core::workload::{Dim, WorkloadSpec};
use gpu_tuned_core::{Goal, suggest};
use proc_macro2::TokenStream;

use super::dims::Dims;
use super::{Places, keys, values};
use crate::error::Mistakes;
use crate::model::{Argument, Value};
use crate::table::Table;

const BUILD_SCRIPT: &str = "add gpu-tuned-build to [build-dependencies], and a build.rs with \
                            `fn main() { gpu_tuned_build::configure().emit() }`";

/// What the attribute asks for.
pub(super) struct Asked<'m> {
    /// The table, when there is a usable one.
    pub resolved: Option<Resolved>,
    pub has_build_script: bool,
    pub goal: Goal,
    pub places: Places,
    pub workload: Option<Source<'m>>,
}

/// Where the workload comes from.
pub(super) enum Source<'m> {
    /// From a file, by name; `None` when there is none of this name.
    Named(Option<WorkloadSpec>),
    /// From dimensions in the attribute and the fields.
    Family {
        /// `transformer` or `convnet`.
        name: &'m Argument,
        dims: &'static [Dim],
        given: &'m [Argument],
    },
}

pub(super) fn check<'m>(arguments: &'m [Argument], table: Table, mistakes: &mut Mistakes) -> Asked<'m> {
    let before = mistakes.len();
    keys::check(arguments, "#[gpu_tuned]", &keys::ATTRIBUTE, mistakes);
    let is_plain = mistakes.len() == before;
    let has_build_script = !matches!(table, Table::Absent);
    let resolved = resolve(arguments, table, mistakes);
    let (goal, places) = goal(arguments, resolved.as_ref(), mistakes);
    let given: Vec<_> = arguments.iter().filter(|it| keys::WORKLOADS.contains(&it.name().as_str())).collect();
    let workload = match given.as_slice() {
        // A misspelled key may well have been the workload.
        [] if !is_plain => None,
        [] => {
            mistakes
                .at(TokenStream::new(), "`#[gpu_tuned]` needs to know what a training step costs")
                .help("name a workload of gpu-tuned.toml: `workload = \"…\"`")
                .help("or give the model's dimensions: `transformer(seq = …, …)` or `convnet(image = …, …)`");
            None
        }
        [first, others @ ..] => {
            for other in others.iter().filter(|other| other.key != first.key) {
                mistakes.at(&other.key, format!("`{}` and `{}` both say what a step costs", first.key, other.key));
            }
            source(first, resolved.as_ref(), has_build_script, mistakes)
        }
    };
    Asked { resolved, has_build_script, goal, places, workload }
}

fn resolve(arguments: &[Argument], table: Table, mistakes: &mut Mistakes) -> Option<Resolved> {
    let target = keys::find(arguments, "target");
    match (table, target) {
        (Table::Broken(why), _) => {
            mistakes.at(TokenStream::new(), format!("cannot read {why}"));
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
            let resolved = Resolved::of_builtin(&id);
            if resolved.is_none() {
                let near = suggest(&id, ProfileTable::builtin_ids());
                mistakes
                    .at(target.place(), format!("there is no GPU profile `{id}`{near}"))
                    .help("the profiles are named as in `rtx4090`, `a100-sxm4-80gb`; `generic` is the careful one")
                    .help("own profiles are for gpu-tuned.toml and need the build script");
            }
            resolved
        }
        (Table::Absent, None) => {
            mistakes
                .at(TokenStream::new(), "`#[gpu_tuned]` does not know the target: the build script has not run")
                .help(BUILD_SCRIPT)
                .help(format!("or name the GPU here: `target = \"rtx4090\"`, or \"{}\"", ProfileId::GENERIC));
            None
        }
    }
}

/// The table's goal with the attribute's values over it.
fn goal(arguments: &[Argument], resolved: Option<&Resolved>, mistakes: &mut Mistakes) -> (Goal, Places) {
    let mut goal = resolved.map(|resolved| resolved.goal.clone()).unwrap_or_default();
    let mut places = Places::new();
    for argument in arguments {
        let name = argument.name();
        let Some(key) = keys::ATTRIBUTE.into_iter().find(|key| *key == name) else { continue };
        match key {
            "global_batch" => goal.global_batch = values::count(argument, mistakes).or(goal.global_batch),
            "world_size" => goal.world_size = values::count(argument, mistakes).unwrap_or(goal.world_size),
            "precision" => goal.precision = values::precision(argument, mistakes).or(goal.precision),
            "memory_headroom" => {
                goal.memory_headroom = values::fraction(argument, mistakes).unwrap_or(goal.memory_headroom);
            }
            "throughput_tolerance" => {
                goal.throughput_tolerance = values::fraction(argument, mistakes).unwrap_or(goal.throughput_tolerance);
            }
            _ => continue,
        }
        places.insert(key, argument.place());
    }
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
) -> Option<Source<'m>> {
    if let Some(dims) = WorkloadSpec::dims(&argument.name()) {
        if let Value::List(given) = &argument.value {
            return Some(Source::Family { name: argument, dims, given });
        }
        mistakes.at(argument.place(), format!("`{0}` takes dimensions: `{0}({1} = …)`", argument.key, dims[0].name));
        return None;
    }
    let name = values::text(argument, mistakes);
    let (Some(name), Some(resolved)) = (name, resolved) else { return Some(Source::Named(None)) };
    let found = resolved.workload.get(&name).cloned();
    if !has_build_script {
        mistakes
            .at(argument.place(), "workloads have names in gpu-tuned.toml only, which needs the build script")
            .help(BUILD_SCRIPT)
            .help("or give the model's dimensions: `transformer(…)` or `convnet(…)`");
    } else if found.is_none() {
        let known: Vec<_> = resolved.workload.keys().map(String::as_str).collect();
        let near = suggest(&name, known.iter().copied());
        let mistake = mistakes.at(argument.place(), format!("gpu-tuned.toml has no workload `{name}`{near}"));
        match known.as_slice() {
            [] => mistake.help(format!("it has none yet: add [workload.{name}]")),
            known => mistake.help(format!("it has {}", known.join(", "))),
        };
    }
    Some(Source::Named(found))
}

impl Asked<'_> {
    /// The workload, once the fields' dimensions are known.
    pub(super) fn spec(&self, dims: Dims<'_>, mistakes: &mut Mistakes) -> Option<WorkloadSpec> {
        match self.workload.as_ref()? {
            Source::Named(spec) => spec.clone(),
            Source::Family { name, dims: known, .. } => dims.spec(&name.key, known, mistakes),
        }
    }
}
