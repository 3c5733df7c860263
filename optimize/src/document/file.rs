//! A config file with its text.

use std::path::{Path, PathBuf};

use gpu_tuned_core::source::{FileError, Source};

use super::Format;
use crate::error::OptimizeError;

/// The byte-order mark that some editors put before UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// A config file with its text.
#[derive(Clone, Debug)]
pub struct ConfigText {
    /// Path of the file.
    pub path: PathBuf,
    /// The file's name in messages.
    pub name: String,
    /// The text without a byte-order mark.
    pub text: String,
    /// Syntax of the text.
    pub format: Format,
    mark: &'static str,
}

impl ConfigText {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// An unknown extension, and a file that cannot be read as UTF-8.
    pub fn read(path: &Path) -> Result<Self, OptimizeError> {
        let format = Format::from_path(path).ok_or_else(|| OptimizeError::Format { path: path.to_owned() })?;
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| OptimizeError::Read { path: path.to_owned(), source })?;
        Ok(Self::new(path, format, &text))
    }

    /// A text that is in a file at this path.
    pub fn new(path: &Path, format: Format, text: &str) -> Self {
        let (mark, text) = text.strip_prefix(BYTE_ORDER_MARK).map_or(("", text), |text| (BYTE_ORDER_MARK, text));
        Self { path: path.to_owned(), name: path.display().to_string(), text: text.to_owned(), format, mark }
    }

    /// A text as the file stores it, with the byte-order mark.
    pub fn with_mark(&self, text: &str) -> String {
        format!("{}{text}", self.mark)
    }

    pub(crate) fn source(&self) -> Source<'_> {
        Source { file: &self.name, text: &self.text }
    }

    /// Mistakes together with this text.
    pub(crate) fn mistakes(&self, mistakes: Vec<FileError>) -> OptimizeError {
        OptimizeError::Mistakes(mistakes.into_iter().map(|mistake| (mistake, self.text.clone())).collect())
    }
}
