//! The release of Burn of a package, compared with the one that gpu-tuned needs.

use std::collections::BTreeSet;
use std::path::Path;

use cargo_metadata::semver::Version;
use cargo_metadata::{Dependency, DependencyKind, Package, TargetKind};
use gpu_tuned_core::regular_file;
use gpu_tuned_project::workspace;
use gpu_tuned_project::workspace::CargoLock;
use thiserror::Error;

use crate::Reading;

/// The oldest release of Burn that gpu-tuned works with.
pub(super) const REQUIRED: Version = Version::new(0, 22, 1);
/// Crates of Burn, which have the same releases.
pub(super) const CRATES: [&str; 8] =
    ["burn", "burn-core", "burn-train", "burn-tensor", "burn-nn", "burn-optim", "burn-autodiff", "burn-ndarray"];

/// A reason why gpu-tuned cannot work in a package.
#[derive(Debug, Error)]
pub enum Refusal {
    /// Another release of Burn.
    #[error(
        "`{package}` has Burn {found}, and gpu-tuned is for Burn {}: their types do not match{old_loop}\n  \
         help: {}; --force sets the package up anyway", REQUIRED, way(*is_older)
    )]
    OtherBurn {
        /// The package.
        package: String,
        /// The releases, and their source.
        found: String,
        /// A remark on the old loop.
        old_loop: String,
        /// True if all releases are older than required.
        is_older: bool,
    },
    /// Burn from a repository, whose release only `Cargo.lock` has.
    #[error(
        "`{package}` takes Burn from a repository, and nothing shows which release that is\n  help: run `cargo generate-lockfile`, and \
         this again; --force sets the package up anyway"
    )]
    UnknownBurn {
        /// The package.
        package: String,
    },
    /// No Burn.
    #[error(
        "`{package}` does not depend on Burn, and gpu-tuned is for programs that train with Burn {}\n  help: run this for the \
         package that trains: -p NAME; --force sets the package up anyway",
        REQUIRED
    )]
    NoBurn {
        /// The package.
        package: String,
    },
    /// A library with Burn for its tests and examples only.
    #[error(
        "Burn is only a dev-dependency of the library `{package}`, and gpu-tuned would be a dependency of all its users\n  help: \
         put the program that trains into a package of its own, and run this there; --force sets the package up anyway"
    )]
    OnlyForTests {
        /// The package.
        package: String,
    },
}

fn way(is_older: bool) -> String {
    if is_older {
        format!("upgrade the program to Burn {REQUIRED} first, build it, and run this again")
    } else {
        format!("there is no gpu-tuned for this release yet; Burn {REQUIRED} works")
    }
}

/// Remarks on a package's release of Burn.
#[derive(Debug, Default)]
pub struct BurnRelease {
    /// The reason against gpu-tuned.
    pub refusal: Option<Refusal>,
    /// Changes by hand.
    pub by_hand: Vec<String>,
    /// Remarks.
    pub notes: Vec<String>,
}

impl BurnRelease {
    /// Reads the releases in `Cargo.lock`, else those that the package asks for.
    pub fn read(package: &Package, workspace: &Path, reading: &Reading) -> Self {
        let (mut found, folder) = (Self::default(), package.manifest_path.as_std_path().parent().unwrap_or(workspace));
        let dependencies: Vec<&Dependency> =
            package.dependencies.iter().filter(|it| CRATES.contains(&it.name.as_str())).collect();
        let lock = workspace::cargo_lock(folder)
            .and_then(|path| CargoLock::parse(&regular_file::read_text(&path, regular_file::LARGEST).ok()?));
        let locked = |name: &str| lock.as_ref().map(|lock| lock.releases(&package.name, name)).unwrap_or_default();
        let first = dependencies.first().map(|it| it.name.as_str());
        let locked =
            [Some("burn"), first].into_iter().flatten().map(locked).find(|it| !it.is_empty()).unwrap_or_default();
        let mut releases: BTreeSet<Version> =
            locked.iter().filter_map(|version| Version::parse(version).ok()).collect();
        let name = || package.name.to_string();
        if dependencies.is_empty() && releases.is_empty() {
            if reading.mentions_burn() || package.dependencies.iter().any(|it| it.name == "gpu-tuned") {
                let (major, minor) = (REQUIRED.major, REQUIRED.minor);
                found
                    .notes
                    .push(format!("the package does not depend on `burn`; gpu-tuned is for Burn {major}.{minor}"));
            } else {
                found.refusal = Some(Refusal::NoBurn { package: name() });
            }
            return found;
        }
        let refuse = |found: String, is_older: bool| Refusal::OtherBurn {
            package: name(),
            found,
            old_loop: reading.old_loop(),
            is_older,
        };
        let elsewhere = dependencies.iter().copied().find(|it| it.path.is_some() || is_git(it));
        let mut place = "Cargo.lock";
        if let (true, Some(dependency)) = (releases.is_empty(), elsewhere) {
            place = if dependency.path.is_some() { "a folder" } else { "a repository" };
            releases.extend(release_of(dependency));
        }
        let list = || releases.iter().map(Version::to_string).collect::<Vec<_>>().join(" and ");
        // `cargo update` changes releases of the registry only.
        let is_fixed = elsewhere.is_some() || is_patched(workspace);
        let is_minor = |version: &Version| {
            let is_same = (version.major, version.minor) == (REQUIRED.major, REQUIRED.minor) && version.pre.is_empty();
            is_same && (!is_fixed || *version >= REQUIRED)
        };
        if releases.is_empty() {
            let other = dependencies.iter().copied().find(|it| !accepts(it));
            found.refusal = match (elsewhere, other) {
                (Some(_), _) => Some(Refusal::UnknownBurn { package: name() }),
                (None, other) => other
                    .map(|it| refuse(format!("`{}`", it.req), lower_bound(it).is_none_or(|bound| bound < REQUIRED))),
            };
        } else if !releases.iter().any(is_minor) {
            let is_older = releases.iter().all(|version| *version < REQUIRED);
            found.refusal = Some(refuse(format!("{} ({place})", list()), is_older));
        } else if releases.len() > 1 {
            found.by_hand.push(format!(
                "Cargo.lock has Burn {}: keep one, as types of different releases do not match; `cargo tree -i burn@VERSION` \
                 prints who needs a release",
                list()
            ));
        } else if releases.iter().any(|version| *version < REQUIRED) {
            found.by_hand.push(format!(
                "Cargo.lock has Burn {}, and gpu-tuned needs {REQUIRED}: run `cargo update burn`",
                list()
            ));
        }
        let is_published = package.publish.as_ref().is_none_or(|registries| !registries.is_empty());
        let is_library = |kind: &TargetKind| matches!(kind, TargetKind::Lib | TargetKind::RLib | TargetKind::DyLib);
        let is_library = package.targets.iter().flat_map(|target| &target.kind).any(is_library);
        if found.refusal.is_none()
            && is_published
            && is_library
            && !dependencies.is_empty()
            && dependencies.iter().all(|it| it.kind == DependencyKind::Development)
        {
            found.refusal = Some(Refusal::OnlyForTests { package: package.name.to_string() });
        }
        found.by_hand.extend(elsewhere.filter(|_| !is_patched(workspace)).map(patch));
        found.notes.extend(dependencies.iter().find(|it| it.optional || it.target.is_some()).map(|it| {
            format!("`{}` is not in every build (optional, or for some targets); `gpu-tuned` is, with Burn", it.name)
        }));
        found
    }
}

impl Reading {
    /// Returns true if the program has Burn by a path through another crate.
    fn mentions_burn(&self) -> bool {
        self.sources.iter().any(|source| source.text.contains("burn::"))
    }

    /// A remark on the loop of older releases.
    fn old_loop(&self) -> String {
        let line = self.sources.iter().filter(|source| source.is_own()).find_map(|source| {
            let (before, _) = source.text.split_once("LearnerBuilder")?;
            Some(format!("{}:{}", source.name, before.matches('\n').count() + 1))
        });
        line.map_or_else(String::new, |line| {
            format!("; `LearnerBuilder` in {line} is the loop of older releases, now `SupervisedTraining`")
        })
    }
}

fn is_git(dependency: &Dependency) -> bool {
    dependency.source.as_ref().is_some_and(|source| source.repr.starts_with("git+"))
}

/// The release in a dependency's folder, or the tag of its repository.
fn release_of(dependency: &Dependency) -> Option<Version> {
    if let Some(folder) = &dependency.path {
        let folder = folder.as_std_path();
        let version = |manifest: &toml::Table, keys: &[&str]| {
            let first = manifest.get(*keys.first()?)?;
            Version::parse(keys[1..].iter().try_fold(first, |value, key| value.get(*key))?.as_str()?).ok()
        };
        let own = version(&workspace::manifest(folder)?, &["package", "version"]);
        let shared = || version(&workspace::manifest(&workspace::root(folder)?)?, &["workspace", "package", "version"]);
        return own.or_else(shared);
    }
    let (_, options) = dependency.source.as_ref()?.repr.split_once('?')?;
    let tag = options.split(['&', '#']).find_map(|option| option.strip_prefix("tag="))?;
    Version::parse(tag.trim_start_matches('v')).ok()
}

fn accepts(dependency: &Dependency) -> bool {
    (REQUIRED.patch..100).any(|patch| dependency.req.matches(&Version::new(REQUIRED.major, REQUIRED.minor, patch)))
}

fn lower_bound(dependency: &Dependency) -> Option<Version> {
    let bound = dependency.req.comparators.first()?;
    Some(Version::new(bound.major, bound.minor.unwrap_or(0), bound.patch.unwrap_or(0)))
}

/// Returns true if the workspace replaces the crate for all packages.
fn is_patched(workspace: &Path) -> bool {
    let manifest = workspace::manifest(workspace);
    manifest
        .is_some_and(|manifest| manifest.get("patch").and_then(|patch| patch.get("crates-io")?.get("burn")).is_some())
}

fn patch(dependency: &Dependency) -> String {
    let (place, what) = match (&dependency.path, &dependency.source) {
        (Some(path), _) => (format!("path = \"{path}\""), "a folder"),
        (None, Some(source)) => {
            let address = source.repr.trim_start_matches("git+").split('#').next().unwrap_or_default();
            let (address, options) = address.split_once('?').unwrap_or((address, ""));
            let options = options.split('&').filter_map(|option| option.split_once('='));
            let options: String = options.map(|(key, value)| format!(", {key} = \"{value}\"")).collect();
            (format!("git = \"{address}\"{options}"), "a repository")
        }
        (None, None) => ("git = \"…\"".to_owned(), "a repository"),
    };
    format!(
        "`{}` comes from {what}, and gpu-tuned's from crates.io: their types do not match. In the workspace's Cargo.toml, write \
         `[patch.crates-io]` with `burn = {{ {place} }}`, and a line for every other crate of Burn that is named. Then ask for \
         `{} = \"{REQUIRED}\"`",
        dependency.name, dependency.name
    )
}
