//! Copies of the C libraries that fakes build, for the tests that load them.

use std::ffi::{CString, c_char};
use std::fs;
use std::path::{Path, PathBuf};

use libloading::{Library, Symbol};
use tempfile::TempDir;

/// Path of the C library of a crate, such as `fake_cudnn`, which cargo builds next to the running test.
///
/// # Panics
///
/// If the library is missing: the crate is no dependency of the package under test.
pub fn built(name: &str) -> PathBuf {
    let name = format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let program = std::env::current_exe().expect("a test knows its own path");
    // A test lies in `deps`, an example in `examples`, a program above both.
    let places = program.ancestors().skip(1).take(2).flat_map(|folder| [folder.join("deps"), folder.to_owned()]);
    let mut candidates = places.map(|place| place.join(&name));
    candidates.find(|file| file.exists()).unwrap_or_else(|| panic!("no {name} near {}", program.display()))
}

/// A copy of a library in a folder of its own, so tests of one process may run in parallel.
pub struct Installed {
    folder: TempDir,
    /// Its crate.
    of: &'static str,
    /// Its file name.
    name: &'static str,
}

impl Installed {
    /// Installs a copy under this name.
    ///
    /// # Panics
    ///
    /// If the library is missing or the temporary folder cannot be written.
    pub fn new(of: &'static str, name: &'static str) -> Self {
        Self::with(of, name, &fs::read(built(of)).expect("the library can be read"))
    }

    /// Installs a copy that does not export a function.
    ///
    /// # Panics
    ///
    /// If the library has no such function.
    pub fn without(of: &'static str, name: &'static str, function: &str) -> Self {
        let mut bytes = fs::read(built(of)).expect("the library can be read");
        let symbol = [b"\0", function.as_bytes(), b"\0"].concat();
        let mut found = 0;
        for start in 0..bytes.len() - symbol.len() {
            if bytes[start..].starts_with(&symbol) {
                bytes[start + 1] = b'X';
                found += 1;
            }
        }
        assert!(found > 0, "the library exports no {function}");
        Self::with(of, name, &bytes)
    }

    fn with(of: &'static str, name: &'static str, bytes: &[u8]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        fs::write(folder.path().join(name), bytes).expect("the temporary folder can be written");
        Self { folder, of, name }
    }

    /// The folder of the copy, for `GPU_TUNED_LIBRARIES`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file of the copy.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }

    /// Changes the behaviour of the copy in this process, in the words of its crate. It lasts while the copy is loaded: load it
    /// before.
    ///
    /// # Panics
    ///
    /// If the copy cannot be loaded.
    pub fn behave(&self, behaviour: &str) {
        let text = CString::new(behaviour).expect("no NUL");
        let (library, symbol) = (self.load(), self.symbol("behave"));
        // SAFETY: all fakes export the function with this type.
        let set: Symbol<'_, unsafe extern "C" fn(*const c_char)> =
            unsafe { library.get(&symbol) }.expect("the library exports it");
        // SAFETY: the string lives until the call is over.
        unsafe { set(text.as_ptr()) };
    }

    /// Objects that were created, are alive, and refused calls, since the copy was loaded.
    ///
    /// # Panics
    ///
    /// If the copy cannot be loaded, or does not count.
    pub fn counts(&self) -> Counts {
        let library = self.load();
        let count = |what| {
            let symbol = self.symbol(what);
            // SAFETY: the fakes that count export the functions with this type.
            let read: Symbol<'_, extern "C" fn() -> usize> =
                unsafe { library.get(&symbol) }.expect("the library exports it");
            read()
        };
        Counts { created: count("created"), alive: count("alive"), mistakes: count("mistakes") }
    }

    fn symbol(&self, what: &str) -> Vec<u8> {
        format!("{}_{what}\0", self.of).into_bytes()
    }

    fn load(&self) -> Library {
        // SAFETY: the library is a fake; loading it runs no code of its own.
        unsafe { Library::new(self.path()) }.unwrap_or_else(|error| panic!("{}: {error}", self.path().display()))
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
