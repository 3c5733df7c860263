//! Changes that set up a package.

use std::fs;
use std::path::Path;

use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_optimize::diff::display_name;
use gpu_tuned_optimize::proposal::{self, Found, Proposal};
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::gpu_names::profiles;

use super::InitArgs;
use super::here::{self, GpuHere};
use super::manifest::{Manifest, Origin, Sibling, SiblingOrigin, Wanted};
use super::script;
use crate::error::Error;
use crate::files::Change;
use crate::project::{Project, RUNTIME, WorkloadArgs};
use crate::target::Here;

const BUILD: Sibling = Sibling { krate: "gpu-tuned-build", folder: "build-support" };
const USUAL: [&str; 2] = ["h200", "rtx4090"];
/// Release of Burn of the runtime.
const BURN: (u64, u64) = (0, 22);

/// Change of a training loop that was not found.
const LOOP: &str = "the training loop: `.with_training_strategy(session.strategy()?)`";

/// Content of a new `gpu-tuned.toml`.
const FILE: &str = include_str!("template.toml");

/// Changes, and remaining work.
#[derive(Debug, Default)]
pub(super) struct Setup {
    pub changes: Vec<Change>,
    pub by_hand: Vec<String>,
    pub proposal: Option<Proposal>,
    /// GPUs of this machine, first the one that the steps build for.
    pub gpus: Vec<GpuHere>,
    /// Command that plans before the program is edited.
    pub now: Option<String>,
    pub steps: Vec<String>,
    pub notes: Vec<String>,
}

impl Setup {
    pub(super) fn new(project: &Project, args: &InitArgs) -> Result<Self, Error> {
        let machine = Here::read(project.profiles(), project.declared());
        let gpus = here::gpus(&machine);
        let targets = targets(project, args, &gpus)?;
        let sources = args.checkout.as_deref().map(origins).transpose()?.unwrap_or([Origin::Release, Origin::Release]);
        let workspace = &project.workspace;
        let mut manifest = Manifest::read(project.manifest(), workspace)?;
        let is_root = &project.root == workspace;
        let mut root = if is_root { None } else { Some(Manifest::read(&workspace.join("Cargo.toml"), workspace)?) };
        let style = manifest.style();

        let mut setup = Self::default();
        manifest.declare(&targets)?;
        let has_loop = has_own_loop(project);
        let names = setup.depend(has_loop, &mut manifest, root.as_mut(), &sources)?;
        let tables = ["dependencies", "build-dependencies"].iter().zip(&names);
        let needs_release = tables.clone().any(|(table, name)| manifest.is_release(table, name, root.as_ref()));
        setup.notes.extend(needs_release.then(unreleased));
        setup.notes.extend(manifest.pass_on([&names[0], &names[1]])?);
        let script = script::of(project, &manifest, &names[1])?;
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
        setup.notes.extend(of_burn(project));
        let found = proposal::find(project.package(), workspace, &names[0], project.has_structs());
        let target = step_target(project, targets, &gpus);
        let is_described = project.workloads(&WorkloadArgs::default()).is_ok();
        if let Some(model) = found.model.as_ref().filter(|_| !is_described) {
            let gpu = if target == ProfileId::NATIVE { "--here" } else { &target };
            setup.now = Some(model.command(gpu));
            let examples = model.examples.iter().map(|dim| format!("`{dim}`")).collect::<Vec<_>>().join(", ");
            let note = || format!("the code does not have {examples}: the first command takes examples");
            setup.notes.extend((!examples.is_empty()).then(note));
        }
        setup.steps = steps(project, &target, gpus.is_empty(), &found);
        setup.notes.extend(here::notes(&machine, &gpus));
        setup.gpus = gpus;
        let Found { proposal, has_loop, left, notes, .. } = found;
        if proposal.is_some() {
            let in_vain = (has_own_loop(project) && !has_loop).then(|| LOOP.to_owned());
            setup.by_hand.extend(if has_loop { left } else { start(&names[0]) });
            setup.by_hand.extend(in_vain);
        }
        setup.proposal = proposal;
        setup.notes.extend(notes);
        Ok(setup)
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
        path if path.join("Cargo.toml").is_file() => Ok(Origin::Path(path)),
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

/// A note on the package's release of Burn.
fn of_burn(project: &Project) -> Option<String> {
    let (major, minor) = BURN;
    let Some(burn) = project.package().dependencies.iter().find(|dependency| dependency.name == "burn") else {
        return Some(format!("the package does not depend on `burn` itself; gpu-tuned is for Burn {major}.{minor}"));
    };
    let fits = (0..100).any(|patch| burn.req.matches(&cargo_metadata::semver::Version::new(major, minor, patch)));
    let note = || format!("the package asks for Burn `{}`, and gpu-tuned is for {major}.{minor}", burn.req);
    (!fits).then(note)
}

/// GPU of the next commands: this machine's; without one a usual GPU, else the first.
fn step_target(project: &Project, added: Vec<ProfileId>, gpus: &[GpuHere]) -> String {
    let all: Vec<ProfileId> = added.into_iter().chain(project.declared()).collect();
    let usual = || all.iter().find(|id| USUAL.contains(&id.as_str())).or(all.first());
    let target = match gpus.first() {
        Some(gpu) => gpu.profile.as_ref().filter(|id| all.contains(id)),
        None => usual(),
    };
    target.map_or(ProfileId::NATIVE, ProfileId::as_str).to_owned()
}

/// Next commands for a GPU.
fn steps(project: &Project, target: &str, is_without_gpu: bool, found: &Found) -> Vec<String> {
    // Without a GPU the program trains on the CPU.
    let device = if is_without_gpu { found.cpu.as_deref() } else { Some("cuda") };
    let features = device.map_or_else(|| target.to_owned(), |device| format!("{target},{device}"));
    // `plan` reads no features: the GPU of `native` is this machine's.
    let planned = if target == ProfileId::NATIVE && !is_without_gpu { " --here" } else { "" };
    let name = project.name();
    let program = found.flag.as_ref().map(|flag| format!(" {flag}")).unwrap_or_default();
    vec![
        format!("cargo gpu-tuned measure -p {name}{program} --features {features}"),
        format!("cargo gpu-tuned plan -p {name}{planned}"),
        format!("cargo run --release -p {name}{program} --features {features}"),
    ]
}

/// Changes of a program with an annotated config.
fn start(krate: &str) -> Vec<String> {
    let krate = krate.replace('-', "_");
    let config =
        format!("where the config is created: `let session = {krate}::start(config)?;`, then `session.config()`");
    let device = "where the device is created: `session.device()`".to_owned();
    let steps = "where steps are taken: `session.loader(dataset, batcher)` and `session.trainer(model, optimizer)?`, which take all \
                 samples of a step; a tuned `batch_size` is the micro-batch, and no batch for a loop by hand";
    vec![config, device, steps.to_owned()]
}

/// Returns true if a source uses Burn's own loop.
fn has_own_loop(project: &Project) -> bool {
    ["src", "examples"].iter().any(|folder| contains(&project.root.join(folder), "SupervisedTraining"))
}

/// Returns true if a source below this folder contains a word.
fn contains(folder: &Path, word: &str) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().map(|entry| entry.path()).any(|path| {
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        let has_it = || fs::read_to_string(&path).is_ok_and(|text| text.contains(word));
        if path.is_dir() { contains(&path, word) } else { is_source && has_it() }
    })
}
