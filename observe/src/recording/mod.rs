//! Recordings of training runs: one JSON object per line ([`Record`]).
//!
//! The monitor records the machine, the training program records its steps. Both may append to one file: each writes
//! whole lines. A record that a killed process did not finish is skipped by the reader. Record kinds and fields of newer
//! versions are ignored; an unknown value of a setting is an error.
//!
//! # Recording a program
//!
//! With the environment variable `GPU_TUNED_RECORD=FILE`, or `gpu_tuned::Options::record`, a session appends a [`Run`] when
//! it starts. With feature `burn` it also appends a [`StepRecord`] for every optimizer step of its trainer, its strategy or
//! its ranks, with the time of each phase and the work of the loader. The program adds its own values with
//! `gpu_tuned::Session::value`. An [`Observer`] receives every record.
//!
//! The host's clock times a step; recording does not synchronize with the device. Another thread writes the records once a
//! second, and when the last recorder is dropped. If the file cannot be written, recording ends with a warning and
//! training continues.
//!
//! # Reading and writing
//!
//! ```
//! use gpu_tuned_observe::recording::{Record, Value, Writer, read};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("run.jsonl");
//! let mut writer = Writer::append(&path)?;
//! writer.write(&Record::Value(Value::new(1.0, "valid/loss", 0.25)))?;
//! writer.flush()?;
//!
//! assert_eq!(read(&path)?.records, [Record::Value(Value::new(1.0, "valid/loss", 0.25))]);
//! # Ok(())
//! # }
//! ```

mod read;
mod record;
mod recorder;
mod step;
mod tail;
mod write;

use std::time::{SystemTime, UNIX_EPOCH};

pub use gpu_tuned_core::plan::Expected;
pub use gpu_tuned_core::telemetry::{Gpu, GpuProcess, GpuSample, Throttle};

pub use read::{LARGEST, Recording, RecordingError, of_process, parse, read};
pub use record::{Device, HostSample, ProcessSample, Record, Run, Start, VERSION, Value};
pub(crate) use record::{belongs_to, is_of_process, last_run, set_back};
pub use recorder::{Observer, Observers, Recorder};
pub use step::{SlowestRank, StepRecord};
pub use tail::Tail;
pub use write::Writer;

/// Seconds since 1970 (UTC): the clock of recordings.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
