//! The workspace that a package belongs to, found as cargo finds it.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::package::Package;

/// The folder of the workspace; `None` where the package belongs to none.
pub(crate) fn root(package: &Path) -> Option<PathBuf> {
    package.ancestors().find_map(|folder| {
        let text = std::fs::read_to_string(folder.join(Package::MANIFEST)).ok()?;
        // What cargo cannot read either is not for us to complain of.
        let manifest: Table = toml::from_str(&text).ok()?;
        match manifest.get("workspace") {
            Some(workspace) => is_in(package, folder, workspace).then(|| folder.to_owned()),
            None => manifest.get("package")?.get("workspace")?.as_str().map(|root| folder.join(root)),
        }
    })
}

/// Whether the workspace in this folder does not exclude the package. That it has it as a member is for cargo to see.
fn is_in(package: &Path, folder: &Path, workspace: &Value) -> bool {
    let names = |key: &str| {
        let paths = workspace.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        paths.into_iter().any(|path| package.starts_with(folder.join(path)))
    };
    !names("exclude") || names("members")
}
