//! A library that exports the C functions of NVIDIA's management library (NVML) and answers from a scenario file.
//!
//! The crate builds two libraries from one source. `libfake_nvml.so` replaces `libnvidia-ml.so.1` in the code under
//! test. The Rust library finds it and its scenarios. There are two ways to play one:
//!
//! * [`play`], in a test: sets the scenario of a copy of the library, so tests of one process may run in parallel.
//! * the environment variable [`SCENARIO_VARIABLE`], for programs started by a test. Set the program's library path to
//!   [`library`] and this variable to a scenario. Every `nvmlInit_v2` reads the variable again.
//!
//! A scenario is a TOML file with one `[[gpu]]` per GPU in NVML's order; [`Scenario`] describes its keys. Missing
//! keys give "not supported", as with real drivers. The section `[expect]` is the expected result; tests of all
//! scenarios compare with it. Figures that change over time are `[[gpu.phases]]`, see [`Phase`].

mod code;
mod expect;
mod exports;
mod phase;
mod play;
mod scenario;
mod state;

use std::path::{Path, PathBuf};

pub use code::Code;
pub use expect::{Expectation, MatchKind};
pub use phase::{Counted, Phase, Reason};
pub use play::{library, play, play_file};
pub use scenario::{Call, Hex, InvalidScenario, PciPlace, Process, Scenario, Unit, Virtualization};

/// Environment variable with the scenario file, for programs that are not started through [`play`].
pub const SCENARIO_VARIABLE: &str = "FAKE_NVML_SCENARIO";

/// The file of the scenario `name`, such as `rtx4090`.
pub fn scenario(name: &str) -> PathBuf {
    scenario_folder().join(name).with_extension("toml")
}

/// The files of all scenarios, sorted by name, except those of `watch`, which change over time.
///
/// # Panics
///
/// If the scenario folder cannot be read.
pub fn scenarios() -> Vec<PathBuf> {
    files_of(&scenario_folder())
}

/// The files of the scenarios `watch/…`, which change over time, sorted by name.
///
/// # Panics
///
/// If the scenario folder cannot be read.
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
