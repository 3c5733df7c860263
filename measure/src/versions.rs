//! Versions of Burn and `CubeCL` in a program.

use std::fs;
use std::path::Path;

/// Versions that this crate is built and tested with.
const BURN: &str = "0.22.1";
const CUBECL: &str = "0.11.3";

/// Version of Burn in the package's `Cargo.lock`; without one, this crate's.
pub(crate) fn burn(package: Option<&Path>) -> String {
    locked(package, "burn").unwrap_or_else(|| BURN.to_owned())
}

/// Version of `CubeCL`, as for [`burn()`].
pub(crate) fn cubecl(package: Option<&Path>) -> String {
    locked(package, "cubecl").unwrap_or_else(|| CUBECL.to_owned())
}

/// Version in the nearest `Cargo.lock` above the package. A workspace member has none of its own.
fn locked(package: Option<&Path>, name: &str) -> Option<String> {
    let lock = package?.ancestors().find_map(|folder| fs::read_to_string(folder.join("Cargo.lock")).ok())?;
    release(&lock, name)
}

/// Version of a package in the text of a `Cargo.lock`; `None` unless it is there once.
fn release(lock: &str, name: &str) -> Option<String> {
    let mut lines = lock.lines();
    let (wanted, mut found) = (format!("name = \"{name}\""), None);
    while lines.any(|line| line == wanted) {
        let release = lines.next()?.strip_prefix("version = \"")?.strip_suffix('"')?.to_owned();
        if found.replace(release).is_some() {
            return None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{BURN, CUBECL, burn, cubecl, release};

    #[test]
    fn the_constants_are_what_this_workspace_locks() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!((burn(Some(package)).as_str(), cubecl(Some(package)).as_str()), (BURN, CUBECL));
        let nowhere = Path::new("/nonexistent/package");
        assert_eq!((burn(Some(nowhere)).as_str(), burn(None).as_str()), (BURN, BURN));
    }

    #[test]
    fn a_release_is_that_of_the_package_and_of_no_other() {
        let lock = "[[package]]\nname = \"burn-core\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"burn\"\nversion = \"0.22.4\"\n";
        assert_eq!(release(lock, "burn").as_deref(), Some("0.22.4"));
        assert_eq!(release(lock, "cubecl"), None);
        let twice = format!("{lock}\n[[package]]\nname = \"burn\"\nversion = \"0.21.0\"\n");
        assert_eq!(release(&twice, "burn"), None);
    }
}
