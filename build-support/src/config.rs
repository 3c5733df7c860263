//! The configuration of a build script, from the files of the package to the table in `OUT_DIR`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gpu_tuned_core::profile::{Profile, ProfileId, ProfileNames, ProfileTable};
use gpu_tuned_core::{atomic_file, regular_file};
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::lock::Lock;
use gpu_tuned_project::resolved::{Resolved, Selected};
use gpu_tuned_project::workspace::{self, CargoLock, MANIFEST};

use crate::package::{Directives, PRINT, Package, TARGET, setting, watch};
use crate::select::{Choice, by_features, by_name, lookalikes, native};
use crate::{BuildError, Environment, Process};

/// The configuration of a build script. Made by [`configure`], ended by [`emit`](Self::emit).
#[derive(Clone, Debug, Default)]
#[must_use = "nothing happens before `emit`"]
pub struct Config {
    single_target: bool,
}

/// Begins the configuration of a build.
pub fn configure() -> Config {
    Config::default()
}

impl Config {
    /// Makes it an error to select several GPUs at once. Then `--all-features` does not build.
    pub fn require_single_target(mut self) -> Self {
        self.single_target = true;
        self
    }

    /// Resolves the table and prints cargo's directives. Every mistake is printed to stderr as rustc would print it; then the process
    /// ends with status 1.
    pub fn emit(self) {
        let mut directives = Vec::new();
        let outcome = self.run(&Process, &mut directives).and_then(|_| {
            let mut out = io::stdout().lock();
            out.write_all(&directives).and_then(|()| out.flush()).map_err(|cause| BuildError::Stdout { cause })
        });
        if let Err(error) = outcome {
            // With stderr closed, only the status reports the failure.
            let _ = error.report(&mut io::stderr().lock());
            std::process::exit(1);
        }
    }

    /// Does the work of [`emit`](Self::emit), with a given environment, and the directives written to `out`.
    ///
    /// # Errors
    ///
    /// Any reason to stop the build; `out` may then contain some directives.
    pub fn run(&self, environment: &impl Environment, out: &mut impl Write) -> Result<Resolved, BuildError> {
        let mut directives = Directives::new(out);
        let package = Package::read(environment)?;
        let named = package.config_file.as_ref();
        let files = named.map_or_else(|| workspace::config_files(&package.root), |file| vec![file.clone()]);
        let path = workspace::existing(&package.root, &files);
        let (manifest, lock) = ([Path::new(MANIFEST)], [Path::new(Lock::NAME)]);
        let is_own = named.is_some() || workspace::is_there(&package.root.join(ConfigFile::NAME));
        let above = if is_own { Vec::new() } else { workspace::manifests_above(&package.root) };
        let above: Vec<_> = above.iter().map(|path| workspace::relative(path, &package.root)).collect();
        let named = above.iter().chain(&files).map(PathBuf::as_path);
        let watched: Vec<_> = manifest.into_iter().chain(named).chain(lock).collect();
        watch(&package, &watched, &mut directives)?;
        let asked = setting(environment, TARGET, &mut directives)?;
        let print = setting(environment, PRINT, &mut directives)?.is_some_and(|value| value != "0");

        let file = read_file(&package, path)?;
        let lock = read_lock(&package, &file, &mut directives)?;
        let known = ProfileNames::new(&file.profiles);
        for warning in lookalikes(&package, &known) {
            directives.warning(&warning)?;
        }
        let selected = match self.choose(asked.as_deref(), &package, &known, &mut directives)? {
            Choice::Generic => Selected::Generic,
            Choice::Targets(targets) => Selected::Targets(targets),
            Choice::Native => native::select(environment, &file.profiles, &mut directives)?,
        };
        let resolved =
            resolve(selected, known.among(package.features.keys()), &file).with_measured(lock).with_file(path);
        let resolved = resolved.with_package(&package.name);
        for warning in unsupported(&resolved) {
            directives.warning(&warning)?;
        }
        let text = resolved.to_toml();
        if print {
            return Err(BuildError::Printed { table: text });
        }
        let runtime = resolved.for_runtime().to_toml();
        let files = [(Resolved::VARIABLE, TABLE, &text), (Resolved::RUNTIME_VARIABLE, RUNTIME_TABLE, &runtime)];
        for (variable, name, text) in files {
            directives.rustc_env(variable, &write(&package.out, name, text)?)?;
        }
        Ok(resolved)
    }

    fn choose(
        &self,
        asked: Option<&str>,
        package: &Package,
        known: &ProfileNames,
        directives: &mut Directives<impl Write>,
    ) -> Result<Choice, BuildError> {
        let choice = if let Some(asked) = asked {
            by_name(asked, known)?
        } else {
            let (choice, warning) = by_features(package, known);
            warning.map_or(Ok(()), |warning| directives.warning(&warning))?;
            choice
        };
        match choice {
            Choice::Targets(targets) if self.single_target && targets.len() > 1 => {
                Err(BuildError::SeveralTargets { targets: targets.iter().map(ToString::to_string).collect() })
            }
            choice => Ok(choice),
        }
    }
}

/// A warning for each selected GPU that Burn cannot train on.
fn unsupported(resolved: &Resolved) -> Vec<String> {
    let Selected::Targets(targets) = &resolved.selected else { return Vec::new() };
    let profiles = targets.iter().filter_map(|id| resolved.profile.get(id.as_str()));
    profiles.filter_map(|profile| Some(format!("{}: {}", profile.id, profile.compute_capability.refusal()?))).collect()
}

/// Parses only the shipped profiles that this build needs: build scripts are not optimised.
fn resolve(selected: Selected, declared: Vec<ProfileId>, file: &ConfigFile) -> Resolved {
    let named: &[ProfileId] = if let Selected::Targets(targets) = &selected { targets } else { &[] };
    let ids = [ProfileId::GENERIC].into_iter().chain(named.iter().map(ProfileId::as_str));
    let shipped = ids.filter_map(ProfileTable::builtin_profile);
    let table: ProfileTable = shipped.chain(file.profiles.iter().map(Profile::clone)).collect();
    Resolved::new(selected, declared, file, &table)
}

/// Reads `gpu-tuned.toml`, which may be missing unless the metadata name it.
fn read_file(package: &Package, path: &Path) -> Result<ConfigFile, BuildError> {
    match (package.file(path, ConfigFile::REMEDY, ConfigFile::parse)?, &package.config_file) {
        (Some(file), _) => Ok(file),
        (None, None) => Ok(ConfigFile::default()),
        (None, Some(_)) => Err(BuildError::Read { path: path.to_owned(), cause: io::ErrorKind::NotFound.into() }),
    }
}

/// Reads the measurements of the package's release of Burn. Warns about a lock of an older format, about measurements of
/// other releases of Burn, and about workloads that were measured under two names.
fn read_lock<W: Write>(
    package: &Package,
    file: &ConfigFile,
    directives: &mut Directives<W>,
) -> Result<Lock, BuildError> {
    let lock = package.file(Path::new(Lock::NAME), Lock::REMEDY, Lock::parse)?;
    let Some(mut lock) = lock else { return Ok(Lock::default()) };
    if let Some(warning) = lock.older_warning() {
        directives.warning(&warning)?;
    }
    for alike in lock.alike(&file.workloads) {
        directives.warning(&alike.to_string())?;
    }
    if lock.workload.values().all(|entry| entry.measured.on.is_empty()) {
        return Ok(lock);
    }
    let Some(path) = workspace::cargo_lock(&package.root) else { return Ok(lock) };
    directives.rerun_if_changed(&path)?;
    // Cargo reports a lock that cannot be read.
    let releases = regular_file::read_text(&path, regular_file::LARGEST).ok().and_then(|text| CargoLock::parse(&text));
    if let Some(releases) = releases {
        for outdated in lock.take_outdated(&releases, &package.name) {
            directives.warning(&outdated.by(&path.display().to_string()))?;
        }
    }
    Ok(lock)
}

/// The whole table, for the attribute.
const TABLE: &str = "gpu-tuned.resolved.toml";
/// The runtime's part of the table.
const RUNTIME_TABLE: &str = "gpu-tuned.runtime.toml";

/// Writes the file `name` in `folder` and returns its path. A file with the same text is not rewritten.
fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf, BuildError> {
    let path = folder.join(name);
    if std::fs::read_to_string(&path).is_ok_and(|present| present == text) {
        return Ok(path);
    }
    match atomic_file::replace(&path, text) {
        Ok(()) => Ok(path),
        Err(cause) => Err(BuildError::Write { path, cause }),
    }
}
