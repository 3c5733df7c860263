//! NVIDIA's cuDNN, version 9, loaded when the program runs.
//!
//! All `unsafe` code of the library is here. Types and numbers follow the library's headers.

use std::path::{Path, PathBuf};

use libloading::Library;

use crate::find::LoadError;
use crate::functions::functions;

/// Version 8 counts in thousands and has other statuses.
const OLDEST: usize = 90_000;

functions! {
    version = b"cudnnGetVersion\0": fn() -> usize;
}

/// The loaded library.
pub struct Cudnn {
    functions: Functions,
    path: PathBuf,
    /// Keeps the functions loaded.
    _library: Library,
}

impl std::fmt::Debug for Cudnn {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cudnn").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Cudnn {
    /// Loads the library from a file, or by a bare name from the system's paths.
    ///
    /// # Errors
    ///
    /// When the file is no such library, or a version before 9.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let refused = |error: libloading::Error| LoadError::Open { path: path.into(), reason: error.to_string() };
        // SAFETY: initialisers of NVIDIA's library need nothing of this process. Which files are loaded is the user's
        // choice, by the system's paths and the variables that `find` documents.
        let library = unsafe { Library::new(path) }.map_err(refused)?;
        let functions = Functions::load(&library).map_err(refused)?;
        // SAFETY: the function has no preconditions.
        let found = unsafe { (functions.version)() };
        if found < OLDEST {
            return Err(LoadError::Version { library: "cuDNN", path: path.into(), found, oldest: OLDEST });
        }
        Ok(Self { functions, path: path.into(), _library: library })
    }

    /// Major version times 10,000, minor version times 100, and patch: 92,801 is version 9.28.1.
    pub fn version(&self) -> usize {
        // SAFETY: the function has no preconditions.
        unsafe { (self.functions.version)() }
    }

    /// The file that was loaded, or its bare name.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
