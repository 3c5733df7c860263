//! Origins of crates.

use std::path::{Path, PathBuf};

use gpu_tuned_project::workspace::manifest;
use toml_edit::{InlineTable, Item};

use super::Manifest;
use super::dependencies::is_true;

pub(in crate::init) enum Origin {
    Release,
    Path(PathBuf),
    /// The origin of another crate, as a manifest writes it.
    Same(InlineTable),
}

/// A crate beside another one in their repository.
pub(in crate::init) struct Sibling {
    pub krate: &'static str,
    pub folder: &'static str,
}

pub(in crate::init) struct SiblingOrigin {
    pub origin: Origin,
    /// True if the workspace sets the origin.
    pub is_offered: bool,
}

impl Manifest {
    /// Origin of a dependency's sibling: by path, git repository or registry.
    pub(in crate::init) fn beside(&self, name: &str, sibling: &Sibling, root: Option<&Self>) -> Option<SiblingOrigin> {
        let (home, entry) = self.described_at("dependencies", name, root)?;
        let text = |key: &str| entry.get(key).and_then(Item::as_str);
        let mut place = InlineTable::new();
        if let Some(path) = text("path") {
            let path = next_to(Path::new(path), sibling.folder);
            if !is_crate(&home.folder().join(&path), sibling.krate) {
                return None;
            }
            place.insert("path", path.display().to_string().into());
        } else {
            let key = ["git", "registry"].into_iter().find(|key| text(key).is_some())?;
            place.extend(text(key).map(|source| (key, source)));
        }
        for key in ["branch", "tag", "rev", "version"] {
            place.extend(text(key).map(|said| (key, said)));
        }
        let is_offered = self.get(&["dependencies", name]).is_some_and(|item| is_true(item, "workspace"));
        Some(SiblingOrigin { origin: Origin::Same(place), is_offered })
    }

    /// Returns true if a dependency comes from crates.io.
    pub(in crate::init) fn is_release(&self, table: &str, name: &str, root: Option<&Self>) -> bool {
        let is_elsewhere = |entry: &Item| ["path", "git", "registry"].iter().any(|key| entry.get(key).is_some());
        !self.described_at(table, name, root).is_some_and(|(_, entry)| is_elsewhere(entry))
    }

    /// Returns true if the workspace describes a crate for its members.
    pub(in crate::init) fn offers(&self, krate: &str) -> bool {
        self.get(&["workspace", "dependencies", krate]).is_some()
    }

    /// The entry that sets a dependency's origin, with its manifest: the package's or the workspace's.
    fn described_at<'m>(&'m self, table: &str, name: &str, root: Option<&'m Self>) -> Option<(&'m Self, &'m Item)> {
        let entry = self.get(&[table, name])?;
        if !is_true(entry, "workspace") {
            return Some((self, entry));
        }
        let root = root.unwrap_or(self);
        Some((root, root.get(&["workspace", "dependencies", name])?))
    }

    /// Folder of relative paths.
    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}

/// Another folder beside this one, as a path of the same kind.
fn next_to(folder: &Path, name: &str) -> PathBuf {
    match (folder.file_name(), folder.parent()) {
        (Some(_), Some(parent)) => parent.join(name),
        // A path that ends in dots.
        _ => folder.join("..").join(name),
    }
}

/// Returns true if a folder has the crate of this name.
fn is_crate(folder: &Path, krate: &str) -> bool {
    let manifest = manifest(folder);
    let name = manifest.as_ref().and_then(|manifest| manifest.get("package")?.get("name")?.as_str());
    name == Some(krate)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::next_to;

    #[test]
    fn a_folder_beside_another_is_named_as_that_is() {
        for (folder, beside) in [
            ("../runtime", "../build-support"),
            ("../runtime/", "../build-support"),
            ("runtime", "build-support"),
            ("/x/runtime", "/x/build-support"),
            ("..", "../../build-support"),
            (".", "./../build-support"),
        ] {
            assert_eq!(next_to(Path::new(folder), "build-support"), Path::new(beside), "{folder}");
        }
    }
}
