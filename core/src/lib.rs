//! GPU profiles and the planner behind `gpu-tuned`.
//!
//! This crate is pure except for [`atomic_file`]: no driver, no `proc_macro`. The attribute (at compile time), the build
//! script, the runtime and the command line all call the same [`plan()`], so that they cannot disagree.

#![forbid(unsafe_code)]

// Macros name this crate as other crates do.
extern crate self as gpu_tuned_core;

pub mod atomic_file;
pub mod device;
pub mod dims;
pub mod exchange;
mod figure;
mod goal;
mod kernels;
pub mod matching;
pub mod measured;
pub mod plan;
mod precision;
pub mod printable;
pub mod profile;
pub mod pytorch;
pub mod regular_file;
mod setting;
/// Named source texts, and errors with a position in them.
pub mod source;
pub mod sparse;
pub mod telemetry;
mod text;
pub mod workload;

pub use figure::{Bytes, Provenance, grouped, three_digits};
pub use goal::Goal;
pub use kernels::{Kernels, LibraryGain};
pub use plan::plan;
pub use precision::{Precision, PrecisionPolicy};
pub use setting::{OnResume, Pins, SetError, Setting, SettingKind, SettingRow, SettingValue, Settings};
pub use text::{ParseError, suggest, suggest_key};
