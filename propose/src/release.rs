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
        let locked = lock.as_ref().map(|lock| lock.releases(&package.name, "burn")).unwrap_or_default();
        let locked = if locked.is_empty() {
            dependencies
                .first()
                .and_then(|it| Some(lock.as_ref()?.releases(&package.name, &it.name)))
                .unwrap_or_default()
        } else {
            locked
        };
        let releases: BTreeSet<Version> = locked.iter().filter_map(|version| Version::parse(version).ok()).collect();
        if dependencies.is_empty() && releases.is_empty() {
            let (major, minor) = (REQUIRED.major, REQUIRED.minor);
            found.notes.push(format!("the package does not depend on `burn`; gpu-tuned is for Burn {major}.{minor}"));
            return found;
        }
        let refuse = |found: String, is_older: bool| Refusal::OtherBurn {
            package: package.name.to_string(),
            found,
            old_loop: reading.old_loop(),
            is_older,
        };
        let list = || releases.iter().map(Version::to_string).collect::<Vec<_>>().join(" and ");
        let is_minor = |version: &Version| (version.major, version.minor) == (REQUIRED.major, REQUIRED.minor);
        let is_of_registry = |it: &&Dependency| it.path.is_none() && !is_git(it);
        if releases.is_empty() {
            // A path or a repository without a lock may have any release.
            let other = dependencies.iter().copied().filter(is_of_registry).find(|it| !accepts(it));
            found.refusal =
                other.map(|it| refuse(format!("`{}`", it.req), lower_bound(it).is_none_or(|bound| bound < REQUIRED)));
        } else if !releases.iter().any(is_minor) {
            let is_older = releases.iter().all(|version| *version < REQUIRED);
            found.refusal = Some(refuse(format!("{} (Cargo.lock)", list()), is_older));
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
        let elsewhere = dependencies.iter().find(|it| !is_of_registry(it));
        found.by_hand.extend(elsewhere.filter(|_| !is_patched(workspace)).map(|it| patch(it)));
        found.notes.extend(dependencies.iter().find(|it| it.optional || it.target.is_some()).map(|it| {
            format!("`{}` is not in every build (optional, or for some targets); `gpu-tuned` is, with Burn", it.name)
        }));
        found
    }
}

impl Reading {
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
