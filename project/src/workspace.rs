//! The workspace of a package, found by cargo's rules.

use std::path::{Path, PathBuf};

use gpu_tuned_core::regular_file;
use toml::{Table, Value};

use crate::cargo_lock::CargoLock;
use crate::config::ConfigFile;

/// The file name of a manifest.
pub const MANIFEST: &str = "Cargo.toml";

/// Reads the manifest in a folder. Cargo reports one that cannot be read.
pub fn manifest(folder: &Path) -> Option<Table> {
    regular_file::read_text(&folder.join(MANIFEST), regular_file::LARGEST).ok()?.parse().ok()
}

/// Returns the folder of the workspace; `None` if the package is in no workspace.
pub fn root(package: &Path) -> Option<PathBuf> {
    package.ancestors().find_map(|folder| {
        let manifest = manifest(folder)?;
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

/// Returns the paths of a package's `gpu-tuned.toml`, from its folder: the package's own, then the workspace's. The first that
/// exists is the package's file.
pub fn config_files(package: &Path) -> Vec<PathBuf> {
    let own = PathBuf::from(ConfigFile::NAME);
    if package.join(&own).exists() {
        return vec![own];
    }
    let shared = root(package).filter(|root| root != package).map(|root| {
        let depth = package.strip_prefix(&root).map(|below| below.components().count());
        // A workspace beside the package has the path of the manifest, such as `../workspace`.
        let beside = || root.strip_prefix(package).unwrap_or(&root).to_owned();
        let folder = depth.map_or_else(|_| beside(), |depth| core::iter::repeat_n("..", depth).collect());
        folder.join(ConfigFile::NAME)
    });
    core::iter::once(own).chain(shared).collect()
}

/// Returns the path of the package's `gpu-tuned.toml`, from its folder. Without such a file, the path of its own.
pub fn config_file(package: &Path) -> PathBuf {
    existing(package, &config_files(package)).to_owned()
}

/// Returns the first of these files that exists in the package's folder. Without one, the first.
///
/// # Panics
///
/// Without files.
pub fn existing<'a>(package: &Path, files: &'a [PathBuf]) -> &'a Path {
    files.iter().find(|file| package.join(file).exists()).unwrap_or(&files[0])
}

/// Returns false if the workspace in `folder` excludes the package. Cargo itself checks the list of members.
fn includes(workspace: &Value, folder: &Path, package: &Path) -> bool {
    let lists = |key: &str| {
        let mut paths = workspace.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        paths.any(|path| package.starts_with(folder.join(path)))
    };
    !lists("exclude") || lists("members")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{MANIFEST, cargo_lock, config_file, root};

    #[test]
    fn packages_have_the_root_that_cargo_finds() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |file: &str, text: &str| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().expect("it is below"))
                .and_then(|()| fs::write(path, text))
                .expect("it is written");
        };
        write(MANIFEST, "[workspace]\nmembers = ['in']\nexclude = ['out']\n");
        for (package, manifest) in
            [("in", "[package]\n"), ("out", "[package]\n"), ("far/own", "[package]\nworkspace = '../..'\n")]
        {
            write(&format!("{package}/{MANIFEST}"), manifest);
        }
        write("Cargo.lock", "");
        write("gpu-tuned.toml", "");
        let (inner, outer, far) = (folder.path().join("in"), folder.path().join("out"), folder.path().join("far/own"));
        assert_eq!(root(&inner).as_deref(), Some(folder.path()));
        assert_eq!(root(&outer), None);
        assert_eq!(root(&far), Some(far.join("../..")));
        assert_eq!(cargo_lock(&inner), Some(folder.path().join("Cargo.lock")));
        assert_eq!(config_file(&inner), Path::new("../gpu-tuned.toml"));
        assert_eq!(config_file(&outer), Path::new("gpu-tuned.toml"));
    }
}
