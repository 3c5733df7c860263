//! `Cargo.toml`, edited in place.

mod dependencies;
mod features;
mod origin;

use std::path::{Path, PathBuf};

use gpu_tuned_core::regular_file::{LARGEST, read_text};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_propose::diff::display_name;
use gpu_tuned_propose::line_endings::{Style, Text};
use toml_edit::{Document, DocumentMut, Item, TableLike};

pub(super) use dependencies::Wanted;
pub(super) use origin::{Origin, Sibling, SiblingOrigin};

use crate::error::Error;
use crate::files::Change;

/// A `Cargo.toml` that is being edited.
pub(super) struct Manifest {
    path: PathBuf,
    name: String,
    before: String,
    text: Text,
    document: DocumentMut,
    /// True if we created the table of features.
    has_new_features: bool,
}

impl Manifest {
    pub(super) fn read(path: &Path, workspace: &Path) -> Result<Self, Error> {
        let before = read_text(path, LARGEST).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let name = display_name(path, workspace);
        let text = Text::parse(&name, &before).map_err(|mistake| in_file(*mistake, &before))?;
        let document = Document::parse(text.lines.as_str()).map_err(|error| {
            let source = Source { file: &name, text: &text.lines };
            in_file(source.error(&error.span().unwrap_or(0..0), error.message()), &text.lines)
        })?;
        let document = document.into_mut();
        Ok(Self { path: path.to_owned(), name, before, text, document, has_new_features: false })
    }

    pub(super) const fn style(&self) -> Style {
        self.text.style()
    }

    pub(super) fn change(self) -> Change {
        let after = self.text.with(self.document.to_string()).written();
        Change { path: self.path, name: self.name, before: Some(self.before), after }
    }

    /// The item at the end of these keys.
    fn get(&self, keys: &[&str]) -> Option<&Item> {
        keys.iter().try_fold(self.document.as_item(), |item, key| item.as_table_like()?.get(key))
    }

    /// The table at the end of these keys.
    fn table(&self, keys: &[&str]) -> Option<&dyn TableLike> {
        self.get(keys)?.as_table_like()
    }

    /// An error at the end of these keys.
    fn mistake(&self, keys: &[&str], message: impl Into<String>) -> Error {
        let text = &self.text.lines;
        let place = Document::parse(text.as_str()).ok().and_then(|document| place(document.as_item(), keys));
        in_file(Source { file: &self.name, text }.error(&place.unwrap_or(0..0), message), text)
    }

    pub(super) fn has_no_script(&self) -> Error {
        self.mistake(&["package", "build"], "the package has no build script; remove `build = false`")
    }

    pub(super) fn forbids_script(&self) -> bool {
        self.get(&["package", "build"]).is_some_and(|build| build.as_bool() == Some(false))
    }
}

fn in_file(mistake: FileError, text: &str) -> Error {
    Error::Files { mistakes: vec![(mistake, text.into())] }
}

/// Place of the last of these keys that has one.
fn place(item: &Item, keys: &[&str]) -> Option<std::ops::Range<usize>> {
    let [first, rest @ ..] = keys else { return None };
    let (key, item) = item.as_table_like()?.get_key_value(first)?;
    place(item, rest).or_else(|| key.span())
}
