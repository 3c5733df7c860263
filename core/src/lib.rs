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
mod goal;
mod grouped;
pub mod matching;
pub mod measured;
pub mod plan;
pub mod printable;
pub mod profile;
pub mod pytorch;
pub mod regular_file;
mod setting;
/// Named source texts, and errors with a position in them.
pub mod source;
pub mod sparse;
pub mod telemetry;

pub use goal::Goal;
pub use gpu_tuned_workload::{
    Bytes, ParsePolicyError, ParsePrecisionError, Precision, PrecisionPolicy, Provenance, suggest, suggest_key,
    workload,
};
pub use grouped::{grouped, three_digits};
pub use plan::plan;
pub use setting::{OnResume, Pins, SetError, Setting, SettingKind, SettingRow, SettingValue, Settings};
