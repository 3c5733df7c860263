//! `cargo gpu-tuned optimize`.

mod args;
mod copies;
mod report;
mod training;

pub(crate) use args::OptimizeArgs;

use std::path::PathBuf;

use gpu_tuned_core::Goal;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_nvml::Fit;
use gpu_tuned_optimize::{Config, ConfigEntry, ConfigText, Dialect, Format, KeyOverride, Step, Task, Tuned, Tuner};
use gpu_tuned_project::config::ConfigFile;

use crate::args::{Common, TargetArgs};
use crate::error::Error;
use crate::files::alone;
use crate::output::{Answer, Code, Form};
use crate::program;
use crate::project::Project;
use crate::stdio::is_standard;
use crate::target::{Target, Targets};
use report::{OnTarget, Report};

pub(crate) fn run(common: &Common, args: &OptimizeArgs) -> Result<Answer, Error> {
    args.write.output.iter().try_for_each(|output| alone(output, common.json))?;
    let mut file = ConfigText::read(&args.config)?;
    let is_other = |output: &&PathBuf| Format::from_path(output).is_some_and(|format| format != file.format);
    if let Some(path) = args.write.output.as_ref().filter(is_other) {
        let ending = args.config.extension().unwrap_or_default().display().to_string();
        return Err(Error::OtherFormat { path: path.clone(), ending });
    }
    let project = project(common, args)?;
    file.dialects = dialects(project.as_ref(), args)?;
    let profiles = project.as_ref().map_or_else(|| ProfileTable::builtin().clone(), Project::profiles);
    let targets = targets(project.as_ref(), &profiles, args)?;
    let mut notes = targets.notes();
    notes.extend(args.goal.note());
    check_single_target(args, if targets.is_choice() { 1 } else { targets.all().len() })?;
    let entries = file.entries()?;
    let overrides = overrides(args, &entries)?;
    let mut config = Config::read(&entries, &file, &overrides)?;
    config.is_training |= args.model.workload.is_some();
    let step = Step::new(&config, args.goal.global_batch, args.goal.world_size)?;
    let devices: Vec<_> = targets.all().iter().map(|target| target.facts_of(step.ranks)).collect();
    let training = training::training(project.as_ref(), args, &entries, &file, &config, &devices)?;
    notes.extend(open_ranks(args, &config));
    let goal = args.goal.over(training.goal.clone());
    let task = Task {
        config: &config,
        step,
        workload: &training.workload,
        name: &training.name,
        goal: Goal { global_batch: None, global_tokens: None, mean_tokens: None, precision: None, ..goal },
        precision: args.goal.precision(),
        add_keys: args.add,
    };
    let tuner = Tuner { file: &file, entries: &entries, overrides: &overrides, task, spec: Some(&training.spec) };
    let tune = |(target, facts): (&Target, _)| tuner.tune(&target.name, facts, target.goal(tuner.task.goal.clone()));
    let tuned = targets.all().iter().zip(&devices).map(tune).collect::<Result<Vec<_>, _>>()?;
    let mut tuned: Vec<_> = targets.all().iter().zip(tuned).collect();
    if targets.is_choice() {
        let fit = |tuned: &Tuned| if tuned.plan.is_some() { Fit::Whole(()) } else { Fit::No { because: None } };
        let (index, reasons) = targets.choose(&tuned.iter().map(|(_, tuned)| fit(tuned)).collect::<Vec<_>>());
        notes.extend(reasons);
        tuned = vec![tuned.swap_remove(index)];
    }
    let with_copy = |(target, tuned): (&Target, Tuned)| -> Result<OnTarget, Error> {
        let path = copies::path(&file.path, target, &args.write, &profiles);
        let copy = tuned.text.as_ref().map(|text| copies::prepare(path, &file, text, &args.write)).transpose()?;
        Ok(OnTarget { tuned, copy })
    };
    let all = tuned.into_iter().map(with_copy).collect::<Result<Vec<_>, _>>()?;
    if !args.write.dry_run {
        copies::write(all.iter().filter_map(|one| one.copy.clone()))?;
    }
    let fits = all.iter().all(|one| one.tuned.plan.is_some());
    let report = Report { args, file: &file, config: &config, step, training: &training, targets: &all };
    let code = if fits { Code::Ok } else { Code::No };
    if args.write.output.as_deref().is_some_and(is_standard) {
        // The copy goes to standard output, the report to standard error.
        notes.push(report.text());
        let text = all.iter().filter_map(|one| one.copy.as_ref()).map(|copy| copy.after.as_str()).collect();
        return Ok(Answer { text, form: Form::Data, notes, code });
    }
    Ok(Answer::new(("optimize", common.json), &report.json(), || report.text(), notes, code))
}

/// The user's dialects, of the package or beside the config.
fn dialects(project: Option<&Project>, args: &OptimizeArgs) -> Result<Vec<&'static Dialect>, Error> {
    let beside = || args.config.with_file_name(ConfigFile::NAME);
    let tables = project.map_or_else(beside, |project| project.root.join(&project.config_file));
    Ok(Dialect::read_user(&tables)?)
}

/// Keys that the user assigns to settings, or leaves alone.
fn overrides(args: &OptimizeArgs, entries: &[ConfigEntry]) -> Result<Vec<KeyOverride>, Error> {
    let assigned = args.at.iter().map(|(setting, key)| KeyOverride::new(setting, key, entries));
    let left = args.leave.iter().map(|key| KeyOverride::leave(key, entries));
    Ok(assigned.chain(left).collect::<Result<_, _>>()?)
}

/// A note on a key that leaves the number of devices open.
fn open_ranks(args: &OptimizeArgs, config: &Config) -> Option<String> {
    let (key, ranks) = (config.open_ranks().filter(|_| args.goal.world_size.is_none())?, config.ranks.unwrap_or(1));
    Some(format!("`{key}` does not give the number of devices: {ranks} is assumed; give it with --world-size"))
}

/// The package, where there is one; measured again with `--benchmark`.
fn project(common: &Common, args: &OptimizeArgs) -> Result<Option<Project>, Error> {
    let needed_by = match (args.benchmark, &args.model.workload) {
        (true, _) => Some("benchmark"),
        (_, Some(_)) => Some("workload"),
        _ => None,
    };
    match (Project::read(common), needed_by) {
        (Ok(project), _) if args.benchmark => {
            if program::measure(&project, common, &args.program, Vec::new(), None)?.is_empty() {
                return Err(Error::NothingMeasured { package: project.name().to_owned() });
            }
            Ok(Some(Project::read(common)?))
        }
        (Ok(project), _) => Ok(Some(project)),
        (Err(Error::NoManifest), Some(option)) => Err(Error::NeedsPackage { option }),
        (Err(Error::NoManifest | Error::SeveralPackages { .. }), None) if !common.names_a_package() => Ok(None),
        (Err(error), _) => Err(error),
    }
}

/// The devices to plan for.
fn targets(project: Option<&Project>, profiles: &ProfileTable, args: &OptimizeArgs) -> Result<Targets, Error> {
    let TargetArgs { names, here } = &args.targets;
    if here.is_given() {
        let declared = project.map(Project::declared).unwrap_or_default();
        let here = Targets::here(profiles.clone(), declared, *here)?;
        return Ok(if here.is_choice() { here } else { here.map(with_distinct_copies) });
    }
    let mut targets = match project {
        Some(project) if !names.is_given() => Target::declared(project),
        _ => Target::all_named(profiles, names)?,
    };
    if targets.is_empty() {
        return Err(Error::NoneNamed);
    }
    Target::take_cores_here(&mut targets, profiles);
    Ok(with_distinct_copies(targets).into())
}

/// The targets without those whose copy has the name of an earlier one.
fn with_distinct_copies(all: Vec<Target>) -> Vec<Target> {
    let mut kept: Vec<Target> = Vec::new();
    for target in all {
        if kept.iter().all(|one| copies::short_name(one) != copies::short_name(&target)) {
            kept.push(target);
        }
    }
    kept
}

fn check_single_target(args: &OptimizeArgs, count: usize) -> Result<(), Error> {
    let single = [("--in-place", args.write.in_place), ("--output", args.write.output.is_some())];
    match single.into_iter().find(|(_, is_given)| *is_given) {
        Some((what, _)) if count != 1 => Err(Error::OneTarget { what, count }),
        _ => Ok(()),
    }
}
