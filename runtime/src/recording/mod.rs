//! Recordings of training runs: files that the monitor and the program write, and that diagnosis and reports read.
//!
//! One JSON object per line ([`Record`]). Several processes append to one file, a whole line at a time, so that a program
//! and its monitor share one; what was being written when a process was killed is the last line at most, and is left out.
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

mod read;
mod write;

use std::time::{SystemTime, UNIX_EPOCH};

pub use gpu_tuned_core::recording::{
    Device, Expected, Gpu, GpuProcess, GpuSample, HostSample, ProcessSample, Record, Run, Start, StepRecord, Throttle,
    VERSION, Value,
};
pub use read::{Recording, RecordingError, parse, read};
pub use write::Writer;

/// The clock of recordings: seconds since 1970 (UTC).
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
