//! Finds the C library and sets its scenario.

use std::ffi::{CString, c_char};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use libloading::{Library, Symbol};

use crate::{Scenario, scenario};

/// Path of the C library, which cargo builds next to the running test.
///
/// # Panics
///
/// If the library is missing: `fake-nvml` is no dependency of the package under test.
pub fn library() -> PathBuf {
    fake_library::built("fake_nvml")
}

/// Plays the scenario `name` (see [`scenario`]) while `read` runs, which receives the path of a library for it alone.
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
    let copy = copy();
    let path = path_of(&copy);
    // SAFETY: the library is this crate; loading it runs no code of its own.
    let library = unsafe { Library::new(&path) }.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    set_scenario(&library, file.as_ptr());
    let result = read(&path);
    set_scenario(&library, ptr::null());
    FREE.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
    result
}

/// Copies of the library that nothing plays. The files have no names, and end with the process.
static FREE: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A copy of the library: another file, or the system would load the same library again, with the same scenario.
fn copy() -> File {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    free.unwrap_or_else(|| {
        let mut copy = tempfile::tempfile().expect("a file can be made");
        io::copy(&mut File::open(library()).expect("a library"), &mut copy).expect("it can be copied");
        copy
    })
}

#[cfg(target_os = "linux")]
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file)))
}

/// Elsewhere all tests play the same library: run one at a time.
#[cfg(not(target_os = "linux"))]
fn path_of(_file: &File) -> PathBuf {
    library()
}

fn set_scenario(library: &Library, file: *const c_char) {
    // SAFETY: the symbol is `fake_nvml_set_scenario` of this crate and has this type.
    let symbol: Symbol<unsafe extern "C" fn(*const c_char)> =
        unsafe { library.get(b"fake_nvml_set_scenario\0") }.expect("the library exports it");
    // SAFETY: `file` is null or a string that lives until the call is over.
    unsafe { symbol(file) };
}
