//! Where crates come from.

use std::fs;
use std::path::{Path, PathBuf};

use toml_edit::{InlineTable, Item};

use super::Manifest;
use super::dependencies::is_true;

/// Where a crate comes from.
pub(in crate::init) enum Origin {
    Release,
    /// From this folder.
    Path(PathBuf),
    /// From where another crate comes, in the words of a manifest.
    Same(InlineTable),
}

/// A crate that lies beside another one in their repository.
pub(in crate::init) struct Sibling {
    pub krate: &'static str,
    pub folder: &'static str,
}

/// Where a sibling is to be taken from, as its entry is to have it.
pub(in crate::init) struct Beside {
    pub origin: Origin,
    /// Whether that is said for the whole workspace.
    pub is_offered: bool,
}

impl Manifest {
    /// Where the sibling of a dependency is, if that is by path, from a git repository or from a registry of its own.
    pub(in crate::init) fn beside(&self, name: &str, sibling: &Sibling, root: Option<&Self>) -> Option<Beside> {
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
        Some(Beside { origin: Origin::Same(place), is_offered })
    }

    /// Whether a dependency is to come from crates.io.
    pub(in crate::init) fn is_release(&self, table: &str, name: &str, root: Option<&Self>) -> bool {
        let is_elsewhere = |entry: &Item| ["path", "git", "registry"].iter().any(|key| entry.get(key).is_some());
        !self.described_at(table, name, root).is_some_and(|(_, entry)| is_elsewhere(entry))
    }

    /// Whether the workspace describes a crate for its members.
    pub(in crate::init) fn offers(&self, krate: &str) -> bool {
        self.get(&["workspace", "dependencies", krate]).is_some()
    }

    /// The manifest that says where a dependency comes from, which may be that of the workspace, and what it says.
    fn described_at<'m>(&'m self, table: &str, name: &str, root: Option<&'m Self>) -> Option<(&'m Self, &'m Item)> {
        let entry = self.get(&[table, name])?;
        if !is_true(entry, "workspace") {
            return Some((self, entry));
        }
        let root = root.unwrap_or(self);
        Some((root, root.get(&["workspace", "dependencies", name])?))
    }

    /// The folder that its paths begin at.
    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}

/// Another folder beside this one, by a path of the same kind.
fn next_to(folder: &Path, name: &str) -> PathBuf {
    match (folder.file_name(), folder.parent()) {
        (Some(_), Some(parent)) => parent.join(name),
        // It ends in dots.
        _ => folder.join("..").join(name),
    }
}

/// Whether a folder has the crate of this name.
fn is_crate(folder: &Path, krate: &str) -> bool {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok().and_then(|text| text.parse::<toml::Table>().ok());
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
