//! `cargo gpu-tuned optimize`.

mod report;

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gpu_tuned_core::Goal;
use gpu_tuned_core::device::{DeviceFacts, DeviceKind};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::regular_file::{LARGEST, read_text};
use gpu_tuned_core::workload::{Workload, WorkloadSpec};
use gpu_tuned_nvml::Fit;
use gpu_tuned_optimize::{
    Config, ConfigEntry, ConfigText, Dimension, Format, Framework, KeyOverride, Model, ModelRequest, Step, Tuned, Tuner,
};
use serde::Serialize;

use crate::args::{Common, GoalArgs, ProgramArgs, TargetArgs, no_standard_stream, pair};
use crate::error::Error;
use crate::files::{Change, alone, is_standard, write_all};
use crate::output::{Answer, Code, Form};
use crate::program;
use crate::project::{Project, WorkloadArgs};
use crate::target::{Target, Targets};
use crate::view::describe_costs;
use report::{OnTarget, Report};

pub(crate) fn run(common: &Common, args: &OptimizeArgs) -> Result<Answer, Error> {
    args.write.output.iter().try_for_each(|output| alone(output, common.json))?;
    let file = ConfigText::read(&args.config)?;
    let is_other = |output: &&PathBuf| Format::from_path(output).is_some_and(|format| format != file.format);
    if let Some(path) = args.write.output.as_ref().filter(is_other) {
        let ending = args.config.extension().unwrap_or_default().display().to_string();
        return Err(Error::OtherFormat { path: path.clone(), ending });
    }
    let project = project(common, args)?;
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
    let training = training(project.as_ref(), args, &entries, &file, &config, &devices)?;
    notes.extend(open_ranks(args, &config));
    // The program of a package is one of Burn.
    let is_of_package = args.benchmark || args.model.workload.is_some();
    let of_config = if is_of_package { Framework::Burn } else { config.framework() };
    let framework = args.model.framework.unwrap_or(of_config);
    let goal = args.goal.over(training.goal.clone());
    let tuner = Tuner {
        config: &config,
        step,
        spec: &training.spec,
        workload: &training.workload,
        name: &training.name,
        goal: Goal { global_batch: None, global_tokens: None, mean_tokens: None, precision: None, ..goal },
        headroom: args.goal.headroom,
        precision: args.goal.precision(),
        add_keys: args.add,
        framework,
    };
    let tune = |(target, facts): (&Target, _)| tuner.tune(&target.name, facts, target.goal(tuner.goal.clone()));
    let tuned = targets.all().iter().zip(&devices).map(tune).collect::<Result<Vec<_>, _>>()?;
    let mut tuned: Vec<_> = targets.all().iter().zip(tuned).collect();
    if targets.is_choice() {
        let fit = |tuned: &Tuned| if tuned.text.is_some() { Fit::Whole(()) } else { Fit::No { because: None } };
        let (index, reasons) = targets.choose(&tuned.iter().map(|(_, tuned)| fit(tuned)).collect::<Vec<_>>());
        notes.extend(reasons);
        tuned = vec![tuned.swap_remove(index)];
    }
    let with_copy = |(target, tuned): (&Target, Tuned)| -> Result<OnTarget, Error> {
        let path = copy_path(&file.path, target, &args.write, &profiles);
        let copy = tuned.text.as_ref().map(|text| prepare_copy(path, &file, text, &args.write)).transpose()?;
        Ok(OnTarget { tuned, copy })
    };
    let all = tuned.into_iter().map(with_copy).collect::<Result<Vec<_>, _>>()?;
    if !args.write.dry_run {
        write_copies(all.iter().filter_map(|one| one.copy.clone()))?;
    }
    let fits = all.iter().all(|one| one.tuned.text.is_some());
    let report = Report { args, file: &file, config: &config, framework, step, training: &training, targets: &all };
    let code = if fits { Code::Ok } else { Code::No };
    if args.write.output.as_deref().is_some_and(is_standard) {
        // The copy goes to standard output, the report to standard error.
        notes.push(report.text());
        let text = all.iter().filter_map(|one| one.copy.as_ref()).map(|copy| copy.after.as_str()).collect();
        return Ok(Answer { text, form: Form::Data, notes, code });
    }
    Ok(Answer::new(("optimize", common.json), &report.json(), || report.text(), notes, code))
}

/// Keys that the user assigns to settings, or leaves alone.
fn overrides(args: &OptimizeArgs, entries: &[ConfigEntry]) -> Result<Vec<KeyOverride>, Error> {
    let assigned = args.at.iter().map(|(setting, key)| KeyOverride::new(setting, key, entries));
    let left = args.leave.iter().map(|key| KeyOverride::leave(key, entries));
    let assumed = args.assume.iter().map(|(key, meaning)| KeyOverride::assume(key, meaning, entries));
    Ok(assigned.chain(left).chain(assumed).collect::<Result<_, _>>()?)
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
        if kept.iter().all(|one| short_name(one) != short_name(&target)) {
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

/// Plan a training config for GPUs, and write a copy of it with the planned settings
///
/// Reads JSON, TOML or YAML of any framework, such as Hugging Face's or Lightning's. The model's dimensions are read from
/// the config, too. The model and the global batch (batch times accumulation times devices) stay. Values are changed in
/// place: order, formatting and comments stay. The copy of `config.json` for an RTX 4090 is `config.rtx4090.json`. Without a
/// GPU, it plans for those that the package declares as features.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("optimize/help.txt"))]
#[command(mut_group("ProgramArgs", |group| group.requires("benchmark")))]
pub(crate) struct OptimizeArgs {
    /// Config to tune
    #[arg(value_name = "CONFIG", value_parser = no_standard_stream())]
    pub config: PathBuf,
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub goal: GoalArgs,
    /// Name the config key for a setting if it cannot be detected, such as `batch_size=train.batch_size`; `train_samples=KEY`
    /// names the key of the data set's size
    #[arg(long = "at", value_name = "SETTING=KEY", value_parser = pair)]
    pub at: Vec<(String, String)>,
    /// Leave a key as it is; may be repeated
    #[arg(long, value_name = "KEY")]
    pub leave: Vec<String>,
    /// Plan with this meaning of a key, which stays as it is; `harmless` for a key without an effect on memory, precision and
    /// task. May be repeated
    #[arg(long, value_name = "KEY=MEANING", value_parser = pair)]
    pub assume: Vec<(String, String)>,
    /// Add missing keys to a hand-written config; accumulation, checkpointing, workers and precision of an ecosystem need no --add
    #[arg(long)]
    pub add: bool,
    /// Run the package's program so that it measures itself, as `measure` does, and plan with the results
    #[arg(long)]
    pub benchmark: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub write: WriteArgs,
    #[command(flatten, next_help_heading = "Program of --benchmark")]
    pub program: ProgramArgs,
}

/// The model that the config trains.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Workload of the package, in place of the config's dimensions
    #[arg(long, value_name = "NAME", conflicts_with_all = ["model", "model_config", "dims"])]
    pub workload: Option<String>,
    /// Kind of model: transformer, encoder_decoder, vit, convnet, unet, mlp, recurrent, lstm, gru, or declared
    #[arg(long, value_name = "KIND")]
    pub model: Option<String>,
    /// File with the model's dimensions, where the config lacks them
    #[arg(long, value_name = "FILE", value_parser = no_standard_stream())]
    pub model_config: Option<PathBuf>,
    /// Framework that runs the training, whose memory decides (default: that of the config's ecosystem; Burn for a
    /// hand-written config without keys of PyTorch)
    #[arg(long, value_name = "NAME", value_parser = Framework::named)]
    pub framework: Option<Framework>,
    /// Dimension of the model or its training, such as `seq=512`, in place of the config's
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = pair)]
    pub dims: Vec<(String, String)>,
}

/// Destination of the copy.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Writing")]
pub(crate) struct WriteArgs {
    /// Write the copy to this file, `-` for standard output; for one target
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["in_place", "dry_run"])]
    pub output: Option<PathBuf>,
    /// Change the config itself; for one target
    #[arg(long, conflicts_with = "dry_run")]
    pub in_place: bool,
    /// Show the changes and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Overwrite a copy that differs
    #[arg(long)]
    pub force: bool,
}

struct Training {
    pub name: String,
    pub workload: Workload,
    pub spec: WorkloadSpec,
    pub goal: Goal,
    /// Origin of the description.
    pub because: String,
    pub dims: Vec<Dimension>,
    /// True if the optimizer is not assumed.
    pub optimizer_known: bool,
}

/// The workload of the package that is named; else the model of the config or of `--model-config`, with its measurements.
/// Measurements on the devices are preferred.
fn training(
    project: Option<&Project>,
    args: &OptimizeArgs,
    entries: &[ConfigEntry],
    text: &ConfigText,
    config: &Config,
    devices: &[DeviceFacts],
) -> Result<Training, Error> {
    let asked = &args.model;
    let is_of_package = asked.workload.is_some() || args.benchmark && asked.model.is_none() && asked.dims.is_empty();
    if let Some(project) = project.filter(|_| is_of_package) {
        let described = project.workload(&WorkloadArgs { workload: asked.workload.clone(), structure: None })?;
        let workload = described.workload();
        let costs = describe_costs(&workload);
        return Ok(Training {
            name: described.name.to_owned(),
            because: format!("workload `{}` of `{}`, {costs}", described.name, project.name()),
            workload,
            spec: described.spec.clone(),
            goal: described.goal,
            dims: Vec::new(),
            optimizer_known: true,
        });
    }
    let optimizer = config.optimizer;
    let request = ModelRequest { kind: asked.model.as_deref(), dims: &asked.dims, optimizer, config: Some(config) };
    let model = match &asked.model_config {
        Some(path) => {
            let file = ConfigText::read(path)?;
            Model::read(&file.entries()?, &file, &request)
        }
        None => Model::read(entries, text, &request),
    }?;
    let kind = model.spec.model.kind().name;
    let mut workload = model.spec.workload();
    let mut because = format!("{kind}, {}", model.because);
    if let Some((name, measured)) = project.and_then(|project| project.measured_for(&model.spec, devices)) {
        workload = workload.with_measured(measured.clone());
        because = format!("{because}; measured as `{name}`");
    }
    Ok(Training {
        name: kind.to_owned(),
        because,
        workload,
        optimizer_known: optimizer.is_some() || model.dims.iter().any(|dim| dim.name == "optimizer"),
        spec: model.spec,
        goal: Goal::default(),
        dims: model.dims,
    })
}

#[derive(Serialize)]
struct CopyReport<'a> {
    file: Option<&'a str>,
    written: bool,
    /// True if the file has the text of the config, or had its own already.
    unchanged: bool,
}

impl<'a> CopyReport<'a> {
    fn new(copy: Option<&'a Change>, config: &ConfigText, dry_run: bool) -> Self {
        let is_needed = copy.is_some_and(Change::is_needed);
        Self {
            file: copy.map(|copy| copy.name.as_str()),
            written: is_needed && !dry_run,
            unchanged: copy.is_some_and(|copy| !is_needed || is_copy(copy, config)),
        }
    }
}

/// Returns true if the file gets the text of the config.
fn is_copy(copy: &Change, config: &ConfigText) -> bool {
    copy.after == config.with_mark(&config.text)
}

fn copy_path(config: &Path, target: &Target, args: &WriteArgs, profiles: &ProfileTable) -> PathBuf {
    if args.in_place {
        return config.to_owned();
    }
    if let Some(output) = &args.output {
        return output.clone();
    }
    let stem = config.file_stem().unwrap_or_default();
    // The copy of a copy has the name of a copy of the config.
    let copied = stem.to_str().and_then(|stem| stem.rsplit_once('.')).filter(|(_, last)| profiles.get(last).is_some());
    let mut name = copied.map_or(stem, |(stem, _)| OsStr::new(stem)).to_owned();
    name.push(format!(".{}.", short_name(target)));
    name.push(config.extension().unwrap_or_default());
    config.with_file_name(name)
}

/// Name of a target in file names: its profile, else the device in small letters with dashes.
fn short_name(target: &Target) -> String {
    if let Some(profile) = &target.profile {
        return profile.id.to_string();
    }
    if target.facts.kind == DeviceKind::Cpu {
        return "cpu".to_owned();
    }
    let words = target.name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// Prepares a copy with this text. A file that differs is refused unless the arguments allow it.
fn prepare_copy(path: PathBuf, config: &ConfigText, text: &str, args: &WriteArgs) -> Result<Change, Error> {
    let after = config.with_mark(text);
    if is_standard(&path) {
        return Ok(Change { path, name: "standard output".to_owned(), before: None, after });
    }
    let present = match read_text(&path, LARGEST) {
        Ok(present) => Some(present),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(source) => return Err(Error::Read { path, source }),
    };
    let differs = present.as_ref().is_some_and(|present| *present != after);
    if differs && !args.force && !args.in_place && !args.dry_run {
        return Err(Error::Exists { path });
    }
    // The edit is of the text that was read.
    let before = if path == config.path { Some(config.with_mark(&config.text)) } else { present };
    let name = path.display().to_string();
    Ok(Change { path, name, before, after })
}

/// Writes all copies, or none.
fn write_copies(copies: impl Iterator<Item = Change>) -> Result<(), Error> {
    let needed: Vec<_> = copies.filter(|copy| copy.is_needed() && !is_standard(&copy.path)).collect();
    write_all(&needed)
}
