//! One source file.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A parsed source file.
pub struct SourceFile {
    /// The file.
    pub path: PathBuf,
    /// The text, with `\n` line ends. The places of `syntax` refer to this text.
    pub text: String,
    /// The parsed text.
    pub syntax: syn::File,
}

/// A source file that cannot be parsed.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The system cannot read the file.
    #[error("cannot read `{}`: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The file is not Rust.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The parser's message.
        message: String,
    },
}

impl SourceFile {
    /// Reads and parses a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or is not Rust.
    pub fn read(path: &Path) -> Result<Self, SourceError> {
        let text = std::fs::read_to_string(path).map_err(|cause| SourceError::Io { path: path.to_owned(), cause })?;
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
        // syn removes a shebang and counts places from there: a comment keeps the places right.
        let text = if text.starts_with("#!/") { text.replacen("#!", "//", 1) } else { text };
        match syn::parse_file(&text) {
            Ok(syntax) => Ok(Self { path: path.to_owned(), text, syntax }),
            Err(error) => Err(SourceError::Syntax {
                path: path.to_owned(),
                line: error.span().start().line,
                message: error.to_string(),
            }),
        }
    }
}
