//! Recordings of training runs: files that the monitor and the program write, and that diagnosis and reports read.
//!
//! One JSON object per line ([`Record`]). Several processes append to one file, a whole line at a time, so that a program
//! and its monitor share one; what was being written when a process was killed is the last record at most, or stands before
//! one of a program that went on, and is left out.
//!
//! # Recording a program
//!
//! With the environment variable `GPU_TUNED_RECORD=FILE`, or [`Options::record`](crate::Options::record), a session appends
//! a [`Run`] when it starts, and with feature `burn` a [`StepRecord`] for every optimizer step of its trainer, its strategy
//! or its ranks: where the host's time went, and what its loader's workers did meanwhile. The program adds figures of its
//! own with [`Session::value`](crate::Session::value), and an [`Observer`] sees all of it as it comes.
//!
//! A step is timed by the host's clock, a few readings of it for each micro-batch, and is not made to wait for the device.
//! What is written is made of it on another thread, once a second, and when the session and what it made are dropped. A file that cannot be written is given up with a
//! warning; training goes on.
//!
//! # Reading and writing
//!
//! ```
//! use gpu_tuned::recording::{Record, Value, Writer, read};
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

mod last;
mod read;
mod recorder;
mod run;
mod write;

use std::time::{SystemTime, UNIX_EPOCH};

pub use gpu_tuned_core::recording::{
    Device, Expected, Gpu, GpuProcess, GpuSample, HostSample, ProcessSample, Record, Run, Start, StepRecord, Throttle,
    VERSION, Value,
};
pub(crate) use last::{is_of, is_of_process, last_run};
pub use read::{Recording, RecordingError, parse, read};
pub use recorder::{Observer, Recorder};
pub(crate) use recorder::{Observers, recorder};
pub(crate) use run::run;
pub use write::Writer;

/// The clock of recordings: seconds since 1970 (UTC).
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
