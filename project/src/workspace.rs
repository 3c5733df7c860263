//! The workspace of a package, found by cargo's rules.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::cargo_lock::CargoLock;

/// The file name of a manifest.
pub const MANIFEST: &str = "Cargo.toml";

/// Returns the folder of the workspace; `None` if the package is in no workspace.
pub fn root(package: &Path) -> Option<PathBuf> {
    package.ancestors().find_map(|folder| {
        let text = std::fs::read_to_string(folder.join(MANIFEST)).ok()?;
        // Cargo reports a manifest that cannot be read.
        let manifest: Table = toml::from_str(&text).ok()?;
        match manifest.get("workspace") {
            Some(workspace) => includes(workspace, folder, package).then(|| folder.to_owned()),
            None => manifest.get("package")?.get("workspace")?.as_str().map(|root| folder.join(root)),
        }
    })
}

/// Returns the path of the `Cargo.lock` that cargo uses: the workspace's. Without a workspace, the nearest one in the
/// package's folder or above.
pub fn cargo_lock(package: &Path) -> Option<PathBuf> {
    let exists = |path: &PathBuf| path.is_file();
    match root(package) {
        Some(root) => Some(root.join(CargoLock::NAME)).filter(exists),
        None => package.ancestors().map(|folder| folder.join(CargoLock::NAME)).find(exists),
    }
}

/// Returns false if the workspace in `folder` excludes the package. Cargo itself checks the list of members.
fn includes(workspace: &Value, folder: &Path, package: &Path) -> bool {
    let lists = |key: &str| {
        let mut paths = workspace.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        paths.any(|path| package.starts_with(folder.join(path)))
    };
    !lists("exclude") || lists("members")
}
