use std::io::Write;
use std::path::{Path, PathBuf};

use gpu_tuned_core::cargo_lock::CargoLock;
use gpu_tuned_core::config::ConfigFile;
use gpu_tuned_core::lock::Lock;

use crate::directives::Directives;
use crate::package::Package;
use crate::{BuildError, workspace};

/// What was measured with the release of Burn that the package is built with; a warning for what was not, and for what is there
/// twice.
pub(crate) fn read<W: Write>(
    package: &Package,
    file: &ConfigFile,
    directives: &mut Directives<W>,
) -> Result<Lock, BuildError> {
    let lock = package.file(Path::new(Lock::NAME), Lock::REMEDY, Lock::parse)?;
    let Some(mut lock) = lock else { return Ok(Lock::default()) };
    for alike in lock.alike(&file.workloads) {
        directives.warning(&alike.to_string())?;
    }
    if lock.workload.values().all(|entry| entry.measured.on.is_empty()) {
        return Ok(lock);
    }
    let Some(path) = cargo_lock(&package.root) else { return Ok(lock) };
    directives.rerun_if_changed(&path)?;
    // What cargo cannot read either is not for us to complain of.
    let releases = std::fs::read_to_string(&path).ok().and_then(|text| CargoLock::parse(&text));
    if let Some(releases) = releases {
        for outdated in lock.take_outdated(&releases, &package.name) {
            directives.warning(&outdated.by(&path.display().to_string()))?;
        }
    }
    Ok(lock)
}

/// The `Cargo.lock` that cargo goes by: the workspace's, whatever a member has beside its manifest. Without a workspace the
/// package's own, or that of a package above which has it as a dependency.
fn cargo_lock(package: &Path) -> Option<PathBuf> {
    let is_there = |path: &PathBuf| path.is_file();
    match workspace::root(package) {
        Some(root) => Some(root.join(CargoLock::NAME)).filter(is_there),
        None => package.ancestors().map(|folder| folder.join(CargoLock::NAME)).find(is_there),
    }
}
