//! Annotated structs in the source files of a package.
//!
//! The reader follows the modules of every target: `mod x;`, `#[path]`, inline modules and `include!`. It sees the attribute
//! by any path that ends in `gpu_tuned`, by a renamed import in the same file, and in `cfg_attr`. It evaluates no `cfg` but
//! `cfg(test)`, and expands no macros.

mod annotated;
mod build_script;
mod collect;
mod file;
mod modules;
mod recognize;

use std::path::{Path, PathBuf};

pub use annotated::Annotated;
pub use build_script::{ConfigFileError, config_file};
pub use file::{SourceError, SourceFile};
pub use recognize::{Aliases, find_attribute};

/// The root file of a target.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// The target's name.
    pub name: &'a str,
    /// The target's root file.
    pub root: &'a Path,
    /// True for tests and benches.
    pub is_test: bool,
}

/// The annotated structs of a package.
#[derive(Debug, Default)]
pub struct Sources {
    /// The structs, in the order of the targets and files.
    pub structs: Vec<Annotated>,
    /// The parts of the sources that were not read.
    pub unread: Vec<Unread>,
}

/// A part of the sources that was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The file.
    pub file: PathBuf,
    /// The line; `None` if the file as a whole was not read.
    pub line: Option<usize>,
    /// The reason.
    pub why: String,
}

impl Sources {
    /// Reads the sources of the targets.
    pub fn read<'a>(targets: impl IntoIterator<Item = Target<'a>>) -> Self {
        let mut reader = modules::Reader::default();
        for target in targets {
            reader.read_target(&target);
        }
        reader.into_sources()
    }
}
