use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gpu_tuned_core::profile::{Profile, ProfileId, ProfileNames, ProfileTable};
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::lock::Lock;
use gpu_tuned_project::resolved::{Resolved, Selected};
use gpu_tuned_project::workspace::{self, MANIFEST};

use crate::directives::Directives;
use crate::environment::{PRINT, TARGET, setting};
use crate::package::Package;
use crate::select::{Choice, by_features, by_name};
use crate::{BuildError, Environment, Process, lookalike, measured, native, output, watch};

/// The configuration of a build script. Made by [`configure`], ended by [`emit`](Self::emit).
#[derive(Clone, Debug, Default)]
#[must_use = "nothing happens before `emit`"]
pub struct Config {
    single_target: bool,
    file: Option<PathBuf>,
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

    /// Takes profiles, workloads and goals from this file, relative to the package's root, instead of `gpu-tuned.toml` of the
    /// package or else of the workspace. The file has to exist. `cargo gpu-tuned` reads the same file, if the build script
    /// names it by a literal or a constant.
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
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
        let files = self.file.clone().map_or_else(|| workspace::config_files(&package.root), |file| vec![file]);
        let path = workspace::existing(&package.root, &files);
        let (manifest, lock) = ([Path::new(MANIFEST)], [Path::new(Lock::NAME)]);
        let watched: Vec<_> = manifest.into_iter().chain(files.iter().map(PathBuf::as_path)).chain(lock).collect();
        watch::watch(&package, &watched, &mut directives)?;
        let asked = setting(environment, TARGET, &mut directives)?;
        let print = setting(environment, PRINT, &mut directives)?.is_some_and(|value| value != "0");

        let file = self.read_file(&package, path)?;
        let lock = measured::read(&package, &file, &mut directives)?;
        let known = ProfileNames::new(&file.profiles);
        for warning in lookalike::warnings(&package, &known) {
            directives.warning(&warning)?;
        }
        let selected = match self.choose(asked.as_deref(), &package, &known, &mut directives)? {
            Choice::Generic => Selected::Generic,
            Choice::Targets(targets) => Selected::Targets(targets),
            Choice::Native => native::select(environment, &file.profiles, &mut directives)?,
        };
        let resolved =
            resolve(selected, known.among(package.features.keys()), &file).with_measured(lock).with_file(path);
        for warning in unsupported(&resolved) {
            directives.warning(&warning)?;
        }
        let text = resolved.to_toml();
        if print {
            return Err(BuildError::Printed { table: text });
        }
        let runtime = resolved.for_runtime().to_toml();
        let files =
            [(Resolved::VARIABLE, output::TABLE, &text), (Resolved::RUNTIME_VARIABLE, output::RUNTIME_TABLE, &runtime)];
        for (variable, name, text) in files {
            directives.rustc_env(variable, &output::write(&package.out, name, text)?)?;
        }
        Ok(resolved)
    }

    fn read_file(&self, package: &Package, path: &Path) -> Result<ConfigFile, BuildError> {
        match (package.file(path, ConfigFile::REMEDY, ConfigFile::parse)?, &self.file) {
            (Some(file), _) => Ok(file),
            (None, None) => Ok(ConfigFile::default()),
            (None, Some(_)) => Err(BuildError::Read { path: path.to_owned(), cause: io::ErrorKind::NotFound.into() }),
        }
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
