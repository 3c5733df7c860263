//! `cargo gpu-tuned optimize`.

mod advice;
mod args;
mod changes;
mod config;
mod error;
mod found;
mod host;
mod keys;
mod leaf;
mod model;
mod more;
mod output;
mod planned;
mod precision;
mod report;
mod source;
mod spell;
mod step;
mod text;

pub(crate) use args::OptimizeArgs;
pub(crate) use error::OptimizeError;

use gpu_tuned_core::profile::{ProfileNames, ProfileTable};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::{Goal, suggest};

use crate::args::Common;
use crate::error::Error;
use crate::measure;
use crate::project::Project;
use crate::recording::{alone, is_standard};
use crate::targets::Target;
use crate::{Answer, Code};
use changes::Changes;
use config::Config;
use found::At;
use host::Host;
use keys::Role;
use leaf::{Leaf, leaves};
use planned::{Can, Outcome, Task};
use report::{OnTarget, Report};
use source::Read;
use step::Step;
use text::Node;

/// Plans a config for each target, and writes a copy for each.
pub(crate) fn run(common: &Common, args: &OptimizeArgs) -> Result<Answer, Error> {
    args.write.output.iter().try_for_each(|output| alone(output, common.json))?;
    let file = Read::from(&args.config)?;
    for_benchmark(args)?;
    let project = project(common, args)?;
    let profiles = project.as_ref().map_or_else(|| ProfileTable::builtin().clone(), Project::profiles);
    let (targets, mut notes) = targets(project.as_ref(), &profiles, args)?;
    only_one(args, targets.len())?;
    let root = file.tree()?;
    let leaves = leaves(&root);
    let at = at(args, &leaves)?;
    let config = Config::read(&leaves, file.source(), &at).map_err(|mistakes| file.mistakes(mistakes))?;
    let step = Step::of(&config, args.goal.global_batch, args.goal.world_size)?;
    let devices: Vec<_> = targets.iter().map(|target| target.facts_of(step.ranks)).collect();
    let training = source::training(project.as_ref(), args, &leaves, &file, config.optimizer, &devices)?;
    notes.extend(open_ranks(&config, args));
    let task = Task {
        can: Can::of(&config, step, args.add),
        config: &config,
        step,
        workload: &training.workload,
        name: &training.name,
        goal: goal(args, training.goal.clone()),
        precision: args.goal.precision,
    };
    let session =
        Session { args, file: &file, leaves: &leaves, at: &at, task, training: &training, profiles: &profiles };
    let all = targets.iter().map(|target| session.on(target)).collect::<Result<Vec<_>, _>>()?;
    if !args.write.dry_run {
        output::write(&all.iter().filter_map(|one| one.file.clone()).collect::<Vec<_>>())?;
    }
    let fits = all.iter().all(|one| one.planned.after.plan().is_some());
    let report = Report { args, file: &file, config: &config, step, training: &training, targets: &all };
    let mut text = if common.json { report.json(&notes) } else { report.text() };
    let mut notes = if common.json { Vec::new() } else { notes };
    if args.write.output.as_deref().is_some_and(is_standard) {
        // The copy has the standard output.
        notes.push(text);
        text = all.iter().filter_map(|one| one.file.as_ref()).map(|file| file.after.as_str()).collect();
    }
    Ok(Answer { text, notes, code: if fits { Code::Fine } else { Code::No } })
}

/// What is the same for all targets.
struct Session<'a> {
    args: &'a OptimizeArgs,
    file: &'a Read,
    leaves: &'a [Leaf<'a>],
    at: &'a [At],
    task: Task<'a>,
    training: &'a source::Training,
    profiles: &'a ProfileTable,
}

impl Session<'_> {
    /// Plans for one target, and makes its copy.
    fn on(&self, target: &Target) -> Result<OnTarget, Error> {
        let Self { args, file, task, .. } = self;
        let planned = task.on(target)?;
        let facts = target.facts_of(task.step.ranks);
        let (target_name, host) = (target.name.clone(), Host::of(&facts));
        let mut one = OnTarget { target: target_name, host, planned, changes: None, file: None, too_small: None };
        let Outcome::Plan(plan) = &one.planned.after else { return Ok(one) };
        let changes = Changes::of(task.config, file.format, self.leaves, plan, args.add);
        self.verify(&changes)?;
        let path = output::path(&file.path, target, &args.write, self.profiles);
        one.file = Some(output::prepared(path, file, &changes.text, &args.write)?);
        let goal = Goal {
            global_batch: Some(task.step.global),
            world_size: task.step.ranks,
            precision: Some(plan.settings.precision),
            ..target.goal(task.goal.clone())
        };
        let described = one.planned.filling.zip(self.training.spec.as_ref());
        one.too_small = described.and_then(|(filling, spec)| advice::of(&facts, spec, &goal, filling.utilization));
        one.changes = Some(changes);
        Ok(one)
    }

    /// Reads the text as it shall be, and looks whether it says what was planned: a step of the same size.
    fn verify(&self, changes: &Changes) -> Result<(), OptimizeError> {
        let Self { file, task, .. } = self;
        let unsaid = |what: String| OptimizeError::Unsaid {
            asked: what,
            help: "--dry-run shows what was planned and writes nothing".to_owned(),
        };
        let source = Source { file: &file.name, text: &changes.text };
        let broken =
            |error: &FileError| unsaid(format!("what was planned: its text would be broken ({})", error.message));
        let root: Node = file.format.parse(source).map_err(|error| broken(&error))?;
        let leaves = leaves(&root);
        let again = Config::read(&leaves, source, self.at).map_err(|all| broken(&all[0]))?;
        let samples = Step::of(&again, None, Some(task.step.ranks)).ok().map(|step| step.global);
        if samples != Some(task.step.global) {
            return Err(unsaid(format!("a step of {} samples in parts that fit", task.step.global)));
        }
        let asked = task.precision.filter(|asked| again.key(Role::Precision).is_some() && *asked != again.precision);
        asked.map_or(Ok(()), |asked| Err(unsaid(asked.name().to_owned())))
    }
}

/// What the command line and the workload ask for beside the batch.
fn goal(args: &OptimizeArgs, goal: Goal) -> Goal {
    Goal { global_batch: None, global_tokens: None, mean_tokens: None, precision: None, ..args.goal.over(goal) }
}

/// The package, where there is one, measured anew if that is asked for.
fn project(common: &Common, args: &OptimizeArgs) -> Result<Option<Project>, Error> {
    let needs = match (args.benchmark, &args.model.workload) {
        (true, _) => Some("benchmark"),
        (_, Some(_)) => Some("workload"),
        _ => None,
    };
    let is_named = common.package.is_some() || common.manifest_path.is_some();
    match (Project::read(common), needs) {
        (Ok(project), _) if args.benchmark => {
            let measured = measure::measured(&project, common, &args.program)?;
            if measured.is_empty() {
                return Err(Error::NothingMeasured { package: project.name().to_owned() });
            }
            Project::read(common).map(Some)
        }
        (Ok(project), _) => Ok(Some(project)),
        (Err(Error::NoManifest), Some(option)) => Err(OptimizeError::NoPackage { option }.into()),
        (Err(Error::NoManifest | Error::SeveralPackages { .. }), None) if !is_named => Ok(None),
        (Err(error), _) => Err(error),
    }
}

/// That options of a program are not given for nothing.
fn for_benchmark(args: &OptimizeArgs) -> Result<(), OptimizeError> {
    let program = &args.program;
    let given = [
        ("--bin", program.bin.is_some()),
        ("--example", program.example.is_some()),
        ("--features", !program.features.is_empty()),
        ("--no-default-features", program.no_default_features),
        ("what follows `--`", !program.args.is_empty()),
    ];
    let what = given.into_iter().find(|(_, is_given)| *is_given && !args.benchmark).map(|(what, _)| what);
    what.map_or(Ok(()), |what| Err(OptimizeError::OnlyForBenchmark { what }))
}

/// The devices to plan for, and what is in the way of looking at some.
fn targets(
    project: Option<&Project>,
    profiles: &ProfileTable,
    args: &OptimizeArgs,
) -> Result<(Vec<Target>, Vec<String>), Error> {
    if args.here {
        let (all, trouble) = Target::here_among(profiles);
        return Ok((each_once(all), trouble));
    }
    let known = project.map_or_else(|| ProfileNames::new(&[]), Project::known);
    let named = |name: &String| {
        let profile = profiles.get(name).map(Target::nominal);
        profile.ok_or_else(|| Error::UnknownTarget { name: name.clone(), hint: known.hint(name) })
    };
    let mut targets = match (args.targets.is_empty(), project) {
        (true, Some(project)) => Target::declared(project),
        _ => args.targets.iter().map(named).collect::<Result<Vec<_>, _>>()?,
    };
    if targets.is_empty() {
        return Err(OptimizeError::NoTargets.into());
    }
    Target::take_cores_here(&mut targets, profiles);
    Ok((each_once(targets), Vec::new()))
}

/// The targets without those whose copy would be the same file.
fn each_once(all: Vec<Target>) -> Vec<Target> {
    let mut kept: Vec<Target> = Vec::new();
    for target in all {
        if kept.iter().all(|one| output::short(one) != output::short(&target)) {
            kept.push(target);
        }
    }
    kept
}

fn only_one(args: &OptimizeArgs, count: usize) -> Result<(), OptimizeError> {
    let what = if args.write.in_place {
        "--in-place"
    } else if args.write.output.is_some() {
        "--output"
    } else {
        return Ok(());
    };
    if count == 1 { Ok(()) } else { Err(OptimizeError::OneTarget { what, count }) }
}

/// What `--at` says, checked against what there is.
fn at(args: &OptimizeArgs, leaves: &[Leaf<'_>]) -> Result<Vec<At>, OptimizeError> {
    let one = |(setting, key): &(String, String)| {
        let names = || Role::NAMED.iter().map(|(name, _)| *name);
        let role = Role::NAMED.iter().find(|(name, _)| name == setting).map(|(_, role)| *role);
        let role = role.ok_or_else(|| OptimizeError::NoSetting {
            name: setting.clone(),
            hint: suggest(setting, names()),
            names: names().collect::<Vec<_>>().join(", "),
        })?;
        if leaves.iter().any(|leaf| leaf.shown == *key && leaf.is_single()) {
            return Ok(At { role, key: key.clone() });
        }
        let hint = suggest(key, leaves.iter().map(|leaf| leaf.shown.as_str()));
        Err(OptimizeError::NoKey { setting: setting.clone(), key: key.clone(), hint })
    };
    args.at.iter().map(one).collect()
}

/// What is to be said where the file leaves the number of devices open.
fn open_ranks(config: &Config<'_>, args: &OptimizeArgs) -> Option<String> {
    let has_key = |role| config.key(role).map(|found| found.leaf.shown.as_str());
    let key = has_key(Role::RanksOfNode).or(has_key(Role::Ranks))?;
    (config.ranks.is_none() && args.goal.world_size.is_none()).then(|| {
        format!("`{key}` does not say how many devices train together: one is counted; say it with --world-size")
    })
}

#[cfg(test)]
mod tests;
