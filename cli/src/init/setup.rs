//! Changes that set up a package.

use std::fs;
use std::path::Path;

use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_core::regular_file::{LARGEST, read_text};
use gpu_tuned_nvml::UsableGpu;
use gpu_tuned_project::gpu_names::profiles;
use gpu_tuned_propose::build_script::with_call;
use gpu_tuned_propose::diff::display_name;
use gpu_tuned_propose::release::{BurnRelease, Refusal};
use gpu_tuned_propose::{Found, ImportProposal, LoopPlaces, Proposal, Reading, TAKE_STEPS};
use serde::Serialize;

use super::InitArgs;
use super::manifest::{Manifest, Origin, Sibling, SiblingOrigin, Wanted};
use crate::error::Error;
use crate::files::Change;
use crate::project::{Dependent, Project, RUNTIME, WorkloadArgs, build_script};
use crate::target::{Here, is_describable};

const BUILD: Sibling = Sibling { krate: "gpu-tuned-build", folder: "build-support" };
const USUAL: [&str; 2] = ["h200", "rtx4090"];

/// Change of a training loop that was not found.
const LOOP: &str = "the training loop: `.with_training_strategy(session.strategy()?)`";

/// The way to plan a model that no kind describes.
const MEASURE: &str = "no kind of model describes what the program builds: `plan` needs `measure` first, which needs no GPU, or \
                       `declared(…)` with the costs of a sample";

/// Content of a new `gpu-tuned.toml`.
const FILE: &str = include_str!("template.toml");

/// Changes, and remaining work.
#[derive(Debug, Default)]
pub(super) struct Setup {
    pub changes: Vec<Change>,
    pub by_hand: Vec<String>,
    pub proposal: Option<Proposal>,
    /// Imports of modules with faster kernels.
    pub imports: Option<ImportProposal>,
    /// GPUs of this machine, first the one that the steps build for.
    pub gpus: Vec<GpuHere>,
    /// Command that plans before the program is edited.
    pub now: Option<String>,
    pub steps: Vec<String>,
    pub notes: Vec<String>,
    /// Parts of a training program, found and not found.
    pub parts: Vec<String>,
    pub missing: Vec<&'static str>,
    /// True if a dependency is a release, and there is none.
    pub needs_release: bool,
}

impl Setup {
    pub(super) fn new(project: &Project, args: &InitArgs) -> Result<Self, Error> {
        let machine = Here::read(project.profiles(), project.declared());
        let gpus = gpus_here(&machine);
        let targets = targets(project, args, &gpus)?;
        let sources = args.checkout.as_deref().map(origins).transpose()?.unwrap_or([Origin::Release, Origin::Release]);
        let workspace = &project.workspace;
        let mut manifest = Manifest::read(project.manifest(), workspace)?;
        let is_root = &project.root == workspace;
        let mut root = if is_root { None } else { Some(Manifest::read(&workspace.join("Cargo.toml"), workspace)?) };
        let style = manifest.style();

        let mut setup = Self::default();
        let reading = Reading::read(project.package(), workspace);
        let BurnRelease { refusal, by_hand, notes } = BurnRelease::read(project.package(), workspace, &reading);
        setup.notes.extend(refusal.map(|refusal| forced(refusal, args)).transpose()?);
        setup.by_hand.extend(by_hand);
        setup.by_hand.extend(project.broken_structs());
        manifest.declare(&targets)?;
        let names = setup.depend(reading.has_loop(), &mut manifest, root.as_mut(), &sources)?;
        let tables = ["dependencies", "build-dependencies"].iter().zip(&names);
        setup.needs_release = tables.clone().any(|(table, name)| manifest.is_release(table, name, root.as_ref()));
        setup.notes.extend(setup.needs_release.then(unreleased));
        let (native, notes_on_features) = manifest.pass_on([&names[0], &names[1]])?;
        setup.notes.extend(notes_on_features);
        let script = script_change(project, &manifest, &names[1])?;
        let file = project.root.join(&project.config_file);
        setup.changes.extend(std::iter::once(manifest.change()).chain(root.map(Manifest::change)));
        match script {
            Ok(change) => setup.changes.extend(change),
            Err(by_hand) => setup.by_hand.push(by_hand),
        }
        if !file.exists() {
            let name = display_name(&file, workspace);
            setup.changes.push(Change { path: file, name, before: None, after: style.apply(FILE) });
        }
        setup.changes.retain(Change::is_needed);
        // Without the dependencies, the build script fails.
        let is_rust = |change: &Change| change.path.extension().is_some_and(|extension| extension == "rs");
        let outside = |it: &Change| !it.is_below(if is_rust(it) { &project.root } else { workspace });
        let is_manifest_outside = setup.changes.iter().any(|it| outside(it) && it.path.ends_with("Cargo.toml"));
        for left in setup.changes.extract_if(.., |change| is_manifest_outside || outside(change)) {
            let why =
                if outside(&left) { "is outside of the package or workspace" } else { "needs the edit of Cargo.toml" };
            setup.by_hand.push(format!("edit {}, which {why}:\n{}", left.name, left.diff()));
        }
        setup.notes.extend(notes);
        let found = reading.propose(project.package(), &names[0], project.has_structs());
        let all: Vec<ProfileId> = targets.into_iter().chain(project.declared()).collect();
        let target = step_target(&all, &gpus);
        let is_described = project.workloads(&WorkloadArgs::default()).is_ok();
        if let (None, false, false) = (&found.model, is_described, project.has_structs()) {
            setup.notes.push(MEASURE.to_owned());
        }
        if let Some(model) = found.model.as_ref().filter(|_| !is_described) {
            let gpu = if target == ProfileId::NATIVE { "--here" } else { &target };
            setup.now = Some(model.command(gpu));
            let examples = model.examples.iter().map(|dim| format!("`{dim}`")).collect::<Vec<_>>().join(", ");
            let note = || format!("the code does not have {examples}: the first command takes examples");
            setup.notes.extend((!examples.is_empty()).then(note));
        }
        let others = if found.programs.is_empty() { project.dependents()? } else { Vec::new() };
        let feature = if target == ProfileId::NATIVE { &native } else { &target };
        setup.steps = steps(project, (&target, feature), gpus.is_empty(), &found, &others);
        setup.notes.extend(gpu_notes(&machine, &gpus));
        setup.gpus = gpus;
        let features: Vec<&str> = all.iter().map(ProfileId::as_str).chain([native.as_str(), "cuda"]).collect();
        let programs = setup.of_programs(project, &found, &others, &features);
        let Found { proposal, imports, has_loop, places, left, notes, parts, missing, .. } = found;
        let in_vain = proposal.is_some() && reading.has_loop() && !has_loop;
        let starts = if proposal.is_some() && !has_loop { start(&names[0], &places) } else { Vec::new() };
        setup.by_hand.extend(left.into_iter().chain(starts).chain(in_vain.then(|| LOOP.to_owned())));
        setup.by_hand.extend(programs);
        (setup.parts, setup.missing) = (parts, missing);
        (setup.proposal, setup.imports) = (proposal, imports);
        setup.notes.extend(notes);
        Ok(setup)
    }

    /// Adds a note on an unknown program. Returns the changes of a package without a program.
    fn of_programs(
        &mut self,
        project: &Project,
        found: &Found,
        others: &[Dependent],
        features: &[&str],
    ) -> Vec<String> {
        match &found.programs[..] {
            [] if others.is_empty() => vec![format!(
                "`{}` has no program: write a binary or an example that trains, or forward the features to it from the package \
                 with the program",
                project.name()
            )],
            [] => others.iter().filter_map(|other| other.forward(features)).collect(),
            several if !found.has_program => {
                self.notes.push(format!(
                    "the code does not show which program trains: put its option into the commands: {}",
                    several.join(", ")
                ));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Returns true if nothing is left to do by hand.
    pub(super) const fn is_complete(&self) -> bool {
        self.by_hand.is_empty() && self.proposal.is_none()
    }

    /// Adds both dependencies, and returns their names in the package.
    fn depend(
        &mut self,
        has_loop: bool,
        manifest: &mut Manifest,
        mut root: Option<&mut Manifest>,
        [runtime, build]: &[Origin; 2],
    ) -> Result<[String; 2], Error> {
        let inherits = manifest.inherits(root.as_deref());
        let own_loop = ["burn", "train"];
        let features = if has_loop { &own_loop[..] } else { &own_loop[..1] };
        let enough = if features.len() == 1 { &["train", "cuda", "warm"][..] } else { &[] };
        let runtime = Wanted { table: "dependencies", krate: RUNTIME, features, enough, from: runtime };
        let name = manifest.depend(&runtime, root.as_deref_mut(), inherits)?;
        if name != RUNTIME {
            self.notes.push(format!("the package renames `{RUNTIME}` to `{name}`: macros expect the original name"));
        }
        // A dependency of the workspace has precedence over the origin of the runtime.
        let is_offered = inherits.is_some() && root.as_deref().unwrap_or(manifest).offers(BUILD.krate);
        let beside = if is_offered || !matches!(build, Origin::Release) {
            None
        } else {
            manifest.beside(&name, &BUILD, root.as_deref())
        };
        // A path in the package itself is not one of the workspace.
        let inherits = inherits.filter(|_| beside.as_ref().is_none_or(|beside| beside.is_offered));
        let from = beside.as_ref().map_or(build, |SiblingOrigin { origin, .. }| origin);
        let build = Wanted { table: "build-dependencies", krate: BUILD.krate, features: &[], enough: &[], from };
        Ok([name, manifest.depend(&build, root, inherits)?])
    }
}

fn targets(project: &Project, args: &InitArgs, gpus: &[GpuHere]) -> Result<Vec<ProfileId>, Error> {
    let mut targets: Vec<ProfileId> = if args.targets.is_given() {
        profiles(&project.profiles(), &args.targets.items())?.into_iter().map(|profile| profile.id.clone()).collect()
    } else if project.declared().is_empty() {
        let usual = USUAL.iter().filter_map(|name| project.known().get(name));
        gpus.iter().filter_map(|gpu| gpu.profile.clone()).chain(usual).collect()
    } else {
        Vec::new()
    };
    targets.sort_unstable();
    targets.dedup();
    Ok(targets)
}

fn origins(checkout: &Path) -> Result<[Origin; 2], Error> {
    let read = |source| Error::Read { path: checkout.to_owned(), source };
    let folder = fs::canonicalize(checkout).map_err(read)?;
    let origin = |name: &'static str| match folder.join(name) {
        folder if folder.join("Cargo.toml").is_file() => {
            Ok(Origin::Path { folder, is_relative: checkout.is_relative() })
        }
        _ => Err(Error::NotACheckout { path: checkout.to_owned(), missing: name }),
    };
    Ok([origin("runtime")?, origin(BUILD.folder)?])
}

/// A note on packages that depend on the release.
fn unreleased() -> String {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).parent().filter(|folder| origins(folder).is_ok());
    let which = own.map_or_else(|| "DIR".to_owned(), |folder| folder.display().to_string());
    format!(
        "{RUNTIME} has no release yet, so that cargo cannot find it: `cargo gpu-tuned init --checkout {which}` depends on a \
         checkout"
    )
}

/// The note on a refusal that `--force` overrides.
fn forced(refusal: Refusal, args: &InitArgs) -> Result<String, Error> {
    if !args.force {
        return Err(Error::Unready(refusal));
    }
    let text = refusal.to_string();
    Ok(format!("forced: {}", text.lines().next().unwrap_or_default()))
}

/// GPU of the next commands: this machine's; without one a usual GPU, else the first.
fn step_target(all: &[ProfileId], gpus: &[GpuHere]) -> String {
    let usual = || all.iter().find(|id| USUAL.contains(&id.as_str())).or(all.first());
    let target = match gpus.first() {
        Some(gpu) => gpu.profile.as_ref().filter(|id| all.contains(id)),
        None => usual(),
    };
    target.map_or(ProfileId::NATIVE, ProfileId::as_str).to_owned()
}

/// Next commands for a GPU and its feature.
fn steps(
    project: &Project,
    (target, feature): (&str, &str),
    is_without_gpu: bool,
    found: &Found,
    others: &[Dependent],
) -> Vec<String> {
    // Without a GPU the program trains on the CPU.
    let device = if is_without_gpu { found.cpu.as_deref() } else { Some("cuda") };
    let features = device.map_or_else(|| feature.to_owned(), |device| format!("{feature},{device}"));
    // `plan` reads no features: the GPU of `native` is this machine's.
    let planned = if target == ProfileId::NATIVE && !is_without_gpu { " --here" } else { "" };
    let name = project.name();
    let plan = format!("cargo gpu-tuned plan -p {name}{planned}");
    let program = match &found.flag {
        _ if found.programs.is_empty() => {
            let run =
                |other: &Dependent| format!("cargo run --release -p {} --features {features}", other.package.name);
            return std::iter::once(plan).chain(others.iter().map(run)).collect();
        }
        Some(flag) => format!(" {flag}"),
        None if found.has_program => String::new(),
        None if found.programs.iter().all(|flag| flag.starts_with("--example")) => " --example NAME".to_owned(),
        None => " --bin NAME".to_owned(),
    };
    let measure = format!("cargo gpu-tuned measure -p {name}{program} --features {features}");
    vec![measure, plan, format!("cargo run --release -p {name}{program} --features {features}")]
}

/// Changes of a program with an annotated config and a loop by hand.
fn start(krate: &str, LoopPlaces { config, device, loader, step }: &LoopPlaces) -> Vec<String> {
    let krate = krate.replace('-', "_");
    let start = format!("`let session = {krate}::start(config)?;`, then `session.config()`");
    let changes = [
        (config, "the config is created", start.as_str()),
        (device, "the device is created", "`session.device()`"),
        (
            loader,
            "the loader is built",
            "`session.loader(dataset, batcher)`, which takes all samples of a step; a tuned `batch_size` is the micro-batch, and no \
             batch for a loop by hand",
        ),
    ];
    let line = |(place, what, change): (&Option<String>, &str, &str)| {
        let place = place.as_ref().map(|place| format!("{place}, ")).unwrap_or_default();
        format!("{place}where {what}: {change}")
    };
    let steps = step.iter().map(|place| format!("{place}, {TAKE_STEPS}"));
    let anywhere = step.is_none().then(|| TAKE_STEPS.to_owned());
    changes.map(line).into_iter().chain(steps).chain(anywhere).collect()
}

/// Change of the package's build script, if one is needed, or the edit by hand with its reason. `krate` is the crate's name in the package.
pub(super) fn script_change(
    project: &Project,
    manifest: &Manifest,
    krate: &str,
) -> Result<Result<Option<Change>, String>, Error> {
    if manifest.forbids_script() {
        return Err(manifest.has_no_script());
    }
    let call = format!("{}::configure().emit();", krate.replace('-', "_"));
    let Some(path) = build_script(project.package()).map(Path::to_owned) else {
        let path = project.root.join("build.rs");
        let name = display_name(&path, &project.workspace);
        let text = format!("//! Resolves the GPU that the enabled features name.\n\nfn main() {{\n    {call}\n}}\n");
        return Ok(Ok(Some(Change { path, name, before: None, after: manifest.style().apply(&text) })));
    };
    let name = display_name(&path, &project.workspace);
    let before = read_text(&path, LARGEST).map_err(|source| Error::Read { path: path.clone(), source })?;
    Ok(match with_call(&name, &before, &call) {
        Ok(after) => Ok(after.map(|after| Change { path, name, before: Some(before), after })),
        Err(why) => Err(format!("add `{call}` to `main` of {name}: {why}")),
    })
}

/// A GPU of this machine.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GpuHere {
    /// Name in the driver.
    pub name: String,
    /// The profile that the GPU matches exactly.
    pub profile: Option<ProfileId>,
    /// True if `targets --here --toml` prints a profile for it.
    #[serde(skip)]
    is_describable: bool,
}

/// GPUs of this machine that can train. First the one that a program takes, where GPUs with a declared profile have
/// precedence: the next commands build for it.
pub(super) fn gpus_here(here: &Here) -> Vec<GpuHere> {
    let gpu = |gpu: &UsableGpu| {
        let reading = &gpu.reading;
        let name = reading.name.clone().unwrap_or_else(|| format!("GPU {} without a name", gpu.position));
        let profile = gpu.found.exact_profile().map(|profile| profile.id.clone());
        GpuHere { name, profile, is_describable: is_describable(reading) }
    };
    let mut gpus: Vec<GpuHere> = here.usable.iter().map(gpu).collect();
    gpus.sort_by_key(|gpu| !gpu.profile.as_ref().is_some_and(|id| here.declared.contains(id)));
    gpus
}

/// Notes on missing GPUs, and on GPUs without a profile.
pub(super) fn gpu_notes(here: &Here, gpus: &[GpuHere]) -> Vec<String> {
    let unmatched = gpus.iter().filter(|gpu| gpu.profile.is_none()).map(|GpuHere { name, is_describable, .. }| {
        let described = if *is_describable {
            ", and `cargo gpu-tuned targets --here --toml` prints a profile for gpu-tuned.toml"
        } else {
            ""
        };
        format!("no profile matches {name} exactly: feature `native` builds for it{described}")
    });
    let mut notes: Vec<String> = here.trouble().into_iter().chain(unmatched).collect();
    notes.dedup();
    notes.extend(gpus.is_empty().then(|| WITHOUT_GPU.to_owned()));
    notes
}

/// A note on commands without a GPU.
const WITHOUT_GPU: &str =
    "this machine has no usable GPU, so that the commands train on the CPU: with a GPU, add `cuda` to their features";
