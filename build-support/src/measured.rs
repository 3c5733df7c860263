use std::io::Write;
use std::path::Path;

use gpu_tuned_core::regular_file;
use gpu_tuned_project::workspace::CargoLock;
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::lock::Lock;
use gpu_tuned_project::workspace;

use crate::BuildError;
use crate::directives::Directives;
use crate::package::Package;

/// Reads the measurements of the package's release of Burn. Warns about a lock of an older format, about measurements of
/// other releases of Burn, and about workloads that were measured under two names.
pub(crate) fn read<W: Write>(
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
