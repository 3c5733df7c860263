//! The Rust side: finds the C library and tells it what to play.

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::{Library, Symbol};

use crate::{Scenario, scenario};

/// The C library that belongs to the running test, which cargo builds beside it.
///
/// # Panics
/// When it is not there: `fake-nvml` is no dependency of the package under test.
pub fn library() -> PathBuf {
    let name = format!("{}fake_nvml{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let program = std::env::current_exe().expect("a test knows its own path");
    // A test lies in `deps`, an example in `examples`, a program above both.
    let places = program.ancestors().skip(1).take(2).flat_map(|folder| [folder.join("deps"), folder.to_owned()]);
    let mut candidates = places.map(|place| place.join(&name));
    candidates.find(|file| file.exists()).unwrap_or_else(|| panic!("no {name} near {}", program.display()))
}

/// Plays the scenario `name` (see [`scenario`]) to whatever `read` calls on this thread; `read` is told the library.
///
/// # Panics
/// When the scenario or the library is missing or faulty.
pub fn play<T>(name: &str, read: impl FnOnce(&Path) -> T) -> T {
    play_file(&scenario(name), read)
}

/// Like [`play`], for a scenario file anywhere.
///
/// # Panics
/// When the scenario or the library is missing or faulty.
pub fn play_file<T>(file: &Path, read: impl FnOnce(&Path) -> T) -> T {
    if let Err(error) = Scenario::load(file) {
        panic!("{error}");
    }
    let file = CString::new(file.to_str().expect("the path is UTF-8")).expect("paths have no NUL");
    let path = library();
    // SAFETY: the library is this crate; loading it runs no code of its own.
    let library = unsafe { Library::new(&path) }.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    rehearse(&library, file.as_ptr());
    let result = read(&path);
    rehearse(&library, ptr::null());
    result
}

fn rehearse(library: &Library, file: *const c_char) {
    // SAFETY: the symbol is `fake_nvml_rehearse` of this crate and has this type.
    let symbol: Symbol<unsafe extern "C" fn(*const c_char)> =
        unsafe { library.get(b"fake_nvml_rehearse\0") }.expect("the library exports it");
    // SAFETY: `file` is null or a string that lives until the call is over.
    unsafe { symbol(file) };
}
