//! Finds the C library and sets its scenario.

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::{Library, Symbol};

use crate::{Scenario, scenario};

/// Path of the C library, which cargo builds next to the running test.
///
/// # Panics
///
/// If the library is missing: `fake-nvml` is no dependency of the package under test.
pub fn library() -> PathBuf {
    let name = format!("{}fake_nvml{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let program = std::env::current_exe().expect("a test knows its own path");
    // A test lies in `deps`, an example in `examples`, a program above both.
    let places = program.ancestors().skip(1).take(2).flat_map(|folder| [folder.join("deps"), folder.to_owned()]);
    let mut candidates = places.map(|place| place.join(&name));
    candidates.find(|file| file.exists()).unwrap_or_else(|| panic!("no {name} near {}", program.display()))
}

/// Plays the scenario `name` (see [`scenario`]) to the calls of `read` on this thread. `read` receives the library's
/// path.
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
    set_scenario(&library, file.as_ptr());
    let result = read(&path);
    set_scenario(&library, ptr::null());
    result
}

fn set_scenario(library: &Library, file: *const c_char) {
    // SAFETY: the symbol is `fake_nvml_set_scenario` of this crate and has this type.
    let symbol: Symbol<unsafe extern "C" fn(*const c_char)> =
        unsafe { library.get(b"fake_nvml_set_scenario\0") }.expect("the library exports it");
    // SAFETY: `file` is null or a string that lives until the call is over.
    unsafe { symbol(file) };
}
