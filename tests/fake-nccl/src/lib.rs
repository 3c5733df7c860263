//! A library that exports the C functions of NVIDIA's NCCL which `gpu-tuned-kernels` loads. Processes of one host sum
//! host memory over sockets.
//!
//! The crate builds two libraries from one source, like the fake cuDNN. `libfake_nccl.so` replaces `libnccl.so.2`; the
//! Rust library installs copies of it into a folder: see [`Fake`].
//!
//! - Communicators do not block: joins and sums run in a thread, and are in progress until all ranks take part.
//! - A sum waits without end for a rank that was lost, as on a GPU. A loss of the first rank, which adds, is a remote error.
//! - A call while another one is in progress, an unknown type, and a configuration that blocks are refused.

mod exports;
mod root;

use std::ffi::{CString, c_char};
use std::fs;
use std::path::{Path, PathBuf};

use libloading::{Library, Symbol};
use tempfile::TempDir;

/// Environment variable with a file that gets a line for each sum that this process begins: its bytes.
pub const SUMS_VARIABLE: &str = "FAKE_NCCL_SUMS";

/// Name of an installed copy.
pub const NAME: &str = "libnccl.so.2";

/// Path of the C library, which cargo builds next to the running test.
///
/// # Panics
///
/// If the library is missing: `fake-nccl` is no dependency of the package under test.
pub fn library() -> PathBuf {
    let name = format!("{}fake_nccl{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let program = std::env::current_exe().expect("a test knows its own path");
    let places = program.ancestors().skip(1).take(2).flat_map(|folder| [folder.join("deps"), folder.to_owned()]);
    let mut candidates = places.map(|place| place.join(&name));
    candidates.find(|file| file.exists()).unwrap_or_else(|| panic!("no {name} near {}", program.display()))
}

/// A copy of the library in a folder of its own, so tests of one process may run in parallel.
pub struct Fake {
    folder: TempDir,
}

impl Fake {
    /// Installs a copy.
    ///
    /// # Panics
    ///
    /// If the library is missing or the temporary folder cannot be written.
    pub fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        fs::copy(library(), folder.path().join(NAME)).expect("the temporary folder can be written");
        Self { folder }
    }

    /// The folder of the copy, for `GPU_TUNED_LIBRARIES`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file of the copy.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    /// Lets a function of the copy fail in this process, breaks its connections, or reports another version:
    /// `ncclAllReduce`, `connection`, `version=21000`. It lasts while the copy is loaded: load it before.
    ///
    /// # Panics
    ///
    /// If the copy cannot be loaded.
    pub fn behave(&self, fault: &str) {
        let text = CString::new(fault).expect("no NUL");
        // SAFETY: the library is this crate; loading it runs no code of its own.
        let library =
            unsafe { Library::new(self.path()) }.unwrap_or_else(|error| panic!("{}: {error}", self.path().display()));
        // SAFETY: the symbol is this crate's function, which has this type.
        let set: Symbol<'_, unsafe extern "C" fn(*const c_char)> =
            unsafe { library.get(b"fake_nccl_behave\0") }.expect("the library exports it");
        // SAFETY: the string lives until the call is over.
        unsafe { set(text.as_ptr()) };
    }
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}
