//! A library that exports the C functions of NVIDIA's cuDNN which `gpu-tuned-kernels` loads. Convolutions, batch
//! norms, recurrent layers, graphs of attention and all gradients are computed on host memory.
//!
//! The crate builds two libraries from one source, like the fake cuBLASLt. `libfake_cudnn.so` replaces `libcudnn.so.9`;
//! the Rust library installs copies of it into a folder: see [`Fake`].
//!
//! - Types are f32 and bf16, sums are f32. With TF32, factors are rounded to 10 bits of fraction.
//! - Unknown objects, shapes that do not match, null pointers and missing workspace are refused. Each refusal of such a call
//!   counts as a mistake.
//! - The algorithm needs [`WORKSPACE_BYTES`] of workspace, and overwrites them.

mod behaviour;
mod exports;
mod graph;
mod norm;
mod objects;
mod passes;
mod recurrent;

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use libloading::{Library, Symbol};
use tempfile::TempDir;

pub use behaviour::{Behaviour, VARIABLE};
pub use objects::WORKSPACE_BYTES;

/// Name of an installed copy.
pub const NAME: &str = "libcudnn.so.9";

/// Path of the C library, which cargo builds next to the running test.
///
/// # Panics
///
/// If the library is missing: `fake-cudnn` is no dependency of the package under test.
pub fn library() -> PathBuf {
    let name = format!("{}fake_cudnn{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
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
        Self::of(&fs::read(library()).expect("the library can be read"))
    }

    /// Installs a copy that does not export a function.
    ///
    /// # Panics
    ///
    /// If the library has no such function.
    pub fn without(function: &str) -> Self {
        let mut bytes = fs::read(library()).expect("the library can be read");
        let name = [b"\0", function.as_bytes(), b"\0"].concat();
        let mut found = 0;
        for start in 0..bytes.len() - name.len() {
            if bytes[start..].starts_with(&name) {
                bytes[start + 1] = b'X';
                found += 1;
            }
        }
        assert!(found > 0, "the library exports no {function}");
        Self::of(&bytes)
    }

    fn of(bytes: &[u8]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        fs::write(folder.path().join(NAME), bytes).expect("the temporary folder can be written");
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

    /// Changes the behaviour of the copy in this process. It lasts while the copy is loaded: load it before.
    ///
    /// # Panics
    ///
    /// If the copy cannot be loaded.
    pub fn behave(&self, behaviour: &Behaviour) {
        let text = CString::new(behaviour.to_string()).expect("no NUL");
        let library = self.load();
        // SAFETY: the symbol is this crate's function, which has this type.
        let set: Symbol<'_, unsafe extern "C" fn(*const std::ffi::c_char)> =
            unsafe { library.get(b"fake_cudnn_behave\0") }.expect("the library exports it");
        // SAFETY: the string lives until the call is over.
        unsafe { set(text.as_ptr()) };
    }

    /// Objects that were created, are alive, and refused calls, since the copy was loaded.
    ///
    /// # Panics
    ///
    /// If the copy cannot be loaded.
    pub fn counts(&self) -> Counts {
        let library = self.load();
        let count = |symbol: &[u8]| {
            // SAFETY: the symbols are this crate's functions, which have this type.
            let read: Symbol<'_, extern "C" fn() -> usize> =
                unsafe { library.get(symbol) }.expect("the library exports it");
            read()
        };
        Counts {
            created: count(b"fake_cudnn_created\0"),
            alive: count(b"fake_cudnn_alive\0"),
            mistakes: count(b"fake_cudnn_mistakes\0"),
        }
    }

    fn load(&self) -> Library {
        // SAFETY: the library is this crate; loading it runs no code of its own.
        unsafe { Library::new(self.path()) }.unwrap_or_else(|error| panic!("{}: {error}", self.path().display()))
    }
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts of a loaded copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Objects that were created.
    pub created: usize,
    /// Objects that were not destroyed yet.
    pub alive: usize,
    /// Calls with wrong arguments.
    pub mistakes: usize,
}
