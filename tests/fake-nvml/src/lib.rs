//! A library that exports the C functions of NVIDIA's management library (NVML) and answers from a scenario file.
//!
//! It is built twice from one source: as `libfake_nvml.so`, which the code under test opens in place of
//! `libnvidia-ml.so.1`, and as a Rust library, which finds the former and its scenarios. Two ways to play one:
//!
//! * [`play`], in a test: the scenario holds for the calling thread, so tests of one process may run side by side.
//! * the environment variable [`SCENARIO_VARIABLE`], for programs that a test starts: point the program's library
//!   path at [`library`] and this variable at a scenario. It is read again at every `nvmlInit_v2`.
//!
//! A scenario is a TOML file, one `[[gpu]]` per GPU in NVML's order; [`Scenario`] describes its keys. A key that is
//! missing answers "not supported", as drivers do. Its section `[expect]` says what is to be made of the machine; tests
//! that go through all scenarios hold the code under test against it. Figures that change while a GPU is watched are its
//! `[[gpu.acts]]`, see [`Act`].

mod act;
mod code;
mod expect;
mod exports;
mod play;
mod scenario;
mod stage;

use std::path::{Path, PathBuf};

pub use act::{Act, Counted, Reason};
pub use code::Code;
pub use expect::{Expectation, Rung};
pub use play::{library, play, play_file};
pub use scenario::{Call, Hex, InvalidScenario, PciPlace, Process, Scenario, Unit, Virtualization};

/// Names the scenario file for programs that are not started through [`play`].
pub const SCENARIO_VARIABLE: &str = "FAKE_NVML_SCENARIO";

/// The file of the scenario `name`, such as `rtx4090`.
pub fn scenario(name: &str) -> PathBuf {
    scenario_folder().join(name).with_extension("toml")
}

/// The files of all scenarios, sorted by name; those of `watch`, in which figures change, are not among them.
///
/// # Panics
/// When the scenario folder cannot be read.
pub fn scenarios() -> Vec<PathBuf> {
    files_of(&scenario_folder())
}

/// The files of the scenarios `watch/…`, in which figures change while a GPU is watched, sorted by name.
///
/// # Panics
/// When the scenario folder cannot be read.
pub fn watch_scenarios() -> Vec<PathBuf> {
    files_of(&scenario_folder().join("watch"))
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the scenario folder is part of the repository");
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files
}

fn scenario_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}
