use std::io::Write;
use std::path::Path;

use gpu_tuned_core::cargo_lock::CargoLock;
use gpu_tuned_core::config::ConfigFile;
use gpu_tuned_core::lock::Lock;

use crate::BuildError;
use crate::directives::Directives;
use crate::package::Package;

/// What was measured with the release of Burn that the package is built with; a warning for what was not, and for what is there
/// twice.
pub(crate) fn read<W: Write>(
    package: &Package,
    file: &ConfigFile,
    directives: &mut Directives<W>,
) -> Result<Lock, BuildError> {
    let Some(mut lock) = package.file(Path::new(Lock::NAME), Lock::parse)? else { return Ok(Lock::default()) };
    for alike in lock.alike(&file.workloads) {
        directives.warning(&alike.to_string())?;
    }
    if lock.workload.values().all(|entry| entry.measured.on.is_empty()) {
        return Ok(lock);
    }
    // A member of a workspace has none of its own.
    let path = package.root.ancestors().map(|folder| folder.join(CargoLock::NAME)).find(|path| path.is_file());
    let Some(path) = path else { return Ok(lock) };
    directives.rerun_if_changed(&path)?;
    // What cargo cannot read either is not for us to complain of.
    let cargo_lock = std::fs::read_to_string(&path).ok().and_then(|text| CargoLock::parse(&text));
    if let Some(cargo_lock) = cargo_lock {
        for outdated in lock.take_outdated(&cargo_lock, &package.name) {
            directives.warning(&outdated.to_string())?;
        }
    }
    Ok(lock)
}
