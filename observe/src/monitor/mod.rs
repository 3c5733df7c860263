//! Watching a training run from inside the program or beside it: its GPUs, the host, and figures that the program names.
//!
//! A [`Monitor`] looks at intervals, in a thread of its own, until it is dropped. It keeps what it saw last, a bounded
//! history, and what the run amounts to so far; it can append all of it to a [recording](crate::recording), which `cargo
//! gpu-tuned monitor --replay` shows and diagnosis reads. A machine without a GPU or a driver is watched, too: the host is
//! there, and [`Latest::start`] says why the GPUs are not.
//!
//! ```
//! use std::time::Duration;
//!
//! use gpu_tuned_observe::monitor::{Monitor, Options};
//!
//! # fn main() -> Result<(), gpu_tuned_observe::monitor::MonitorError> {
//! let monitor = Monitor::start(&Options::default().interval(Duration::from_secs(1)))?;
//! for epoch in 0..3 {
//!     // … train …
//!     monitor.value("valid/accuracy", 0.9 + 0.01 * f64::from(epoch));
//! }
//! let summary = monitor.stop()?;
//! assert_eq!(summary.values["valid/accuracy"].max, 0.92);
//! for gpu in &summary.gpus {
//!     println!("GPU {}: {:?} J", gpu.gpu.gpu, gpu.energy_j);
//! }
//! # Ok(())
//! # }
//! ```

mod csv;
mod gpus;
mod host;
#[cfg(feature = "nvml")]
mod names;
mod options;
mod prometheus;
mod sampler;
mod series;
mod state;
mod summary;
mod threads;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::recording::{Record, Value};
use thiserror::Error;

pub use crate::metrics::{Figure, GPU_FIGURES, HOST_FIGURES, throttle_key};
use crate::recording::{Writer, now};
pub use csv::{csv_header, csv_line};
pub use options::{LEAST_INTERVAL, Options};
pub(crate) use prometheus::expose;
pub use prometheus::to_prometheus;
pub use sampler::Sampler;
pub use series::{Series, Stats};
pub use state::Latest;
pub use summary::{Gathering, GpuSummary, StepSummary, Summary};

use state::State;

/// Looks at the machine at intervals, in a thread of its own, until it is stopped or dropped.
#[derive(Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Why there is no monitor, or not all of what it saw was written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// The recording cannot be opened or written.
    #[error("cannot write the recording `{}`: {cause}", path.display())]
    Record {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The file is there and is something else.
    #[error("`{}` is no recording: nothing is appended to it", path.display())]
    NoRecording {
        /// Which.
        path: PathBuf,
    },
    /// The system gives no thread.
    #[error("cannot start the monitor's thread: {cause}")]
    Thread {
        /// Why.
        cause: io::Error,
    },
}

/// What the monitor and its thread share.
struct Shared {
    state: Mutex<State>,
    stopping: Mutex<bool>,
    stopped: Condvar,
    record: Option<PathBuf>,
}

impl Monitor {
    /// Starts to watch.
    ///
    /// # Errors
    ///
    /// See [`MonitorError`]; a recording is begun at once. A driver that cannot be asked is no error.
    pub fn start(options: &Options) -> Result<Self, MonitorError> {
        let writer = options.record.as_ref().map(open).transpose()?;
        let sampler = Sampler::open(options);
        let mut state = State::new(options.history, writer);
        state.observe(vec![Record::Start(sampler.start())]);
        state.flush();
        written(&mut state, options.record.as_ref())?;
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
            record: options.record.clone(),
        });
        let (watched, interval) = (Arc::clone(&shared), options.interval);
        let thread = thread::Builder::new().name("gpu-tuned-monitor".to_owned());
        let thread = thread.spawn(move || watched.watch(sampler, interval));
        let thread = Some(thread.map_err(|cause| MonitorError::Thread { cause })?);
        Ok(Self { shared, thread })
    }

    /// Notes a figure of the program's own, such as `valid/loss`, as of now.
    pub fn value(&self, name: impl Into<String>, value: f64) {
        self.shared.state().observe(vec![Record::Value(Value::new(now(), name, value))]);
    }

    /// Notes a figure that belongs to an optimizer step.
    pub fn value_at_step(&self, name: impl Into<String>, value: f64, step: u64) {
        let mut noted = Value::new(now(), name, value);
        noted.step = Some(step);
        self.shared.state().observe(vec![Record::Value(noted)]);
    }

    /// The last that was seen of everything.
    pub fn latest(&self) -> Latest {
        self.shared.state().latest().clone()
    }

    /// What the run amounts to so far.
    pub fn summary(&self) -> Summary {
        self.shared.state().summary()
    }

    /// The records that are kept, oldest first.
    pub fn history(&self) -> Vec<Record> {
        self.shared.state().history().iter().cloned().collect()
    }

    /// The records from number `from` on, as far as they are kept, and the number to ask for next. The first one is 0.
    pub fn since(&self, from: u64) -> (u64, Vec<Record>) {
        self.shared.state().since(from)
    }

    /// The samples that are kept, as comma-separated values with a line of names.
    pub fn to_csv(&self) -> String {
        let state = self.shared.state();
        let uuid = |record: &Record| match record {
            Record::Gpu(sample) => {
                let gpus = &state.latest().start.gpus;
                let gpu = gpus.iter().find(|gpu| (gpu.gpu, gpu.mig_slot) == (sample.gpu, sample.mig_slot));
                gpu.and_then(|gpu| gpu.uuid.as_deref())
            }
            _ => None,
        };
        let lines = state.history().iter().filter_map(|record| csv_line(record, uuid(record)));
        [csv_header()].into_iter().chain(lines).collect()
    }

    /// What was seen last, as Prometheus reads it: see [`to_prometheus`].
    pub fn to_prometheus(&self) -> String {
        let state = self.shared.state();
        to_prometheus(state.latest(), &state.summary())
    }

    /// Stops, after a last look, and says what the run amounts to.
    ///
    /// # Errors
    ///
    /// [`MonitorError::Record`] when the recording could not be written to its end.
    pub fn stop(mut self) -> Result<Summary, MonitorError> {
        self.end();
        let mut state = self.shared.state();
        written(&mut state, self.shared.record.as_ref())?;
        Ok(state.summary())
    }

    /// Whether all that was seen until now could be written. Watching goes on without a recording that could not; that is
    /// told once, here or by [`stop`](Self::stop).
    ///
    /// # Errors
    ///
    /// [`MonitorError::Record`] when it could not.
    pub fn written(&self) -> Result<(), MonitorError> {
        let mut state = self.shared.state();
        state.flush();
        written(&mut state, self.shared.record.as_ref())
    }

    fn end(&mut self) {
        *self.shared.stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            // It panics on nothing; were it to, the program that is watched should not.
            let _ = thread.join();
        }
    }
}

fn written(state: &mut State, record: Option<&PathBuf>) -> Result<(), MonitorError> {
    match (state.write_error.take(), record) {
        (Some(cause), Some(path)) => Err(MonitorError::Record { path: path.clone(), cause }),
        _ => Ok(()),
    }
}

/// Goes on with a recording, or begins it; another file is left alone.
fn open(path: &PathBuf) -> Result<Writer, MonitorError> {
    if path.is_file() && !could_be_recording(path) {
        return Err(MonitorError::NoRecording { path: path.clone() });
    }
    Writer::append(path).map_err(|cause| MonitorError::Record { path: path.clone(), cause })
}

/// Whether a file is empty or begins with a record. One that cannot be read cannot be told, and is written at most.
fn could_be_recording(path: &Path) -> bool {
    let mut first = Vec::new();
    let read =
        File::open(path).and_then(|file| BufReader::new(file.take(MOST_OF_A_LINE)).read_until(b'\n', &mut first));
    read.is_err() || first.is_empty() || serde_json::from_slice::<Record>(&first).is_ok()
}

/// No record is as long, in bytes.
const MOST_OF_A_LINE: u64 = 1 << 24;

impl Drop for Monitor {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until it is stopped, and once more then, unless that is too soon.
    fn watch(&self, mut sampler: Sampler, interval: Duration) {
        let mut next = Instant::now();
        loop {
            self.look(&mut sampler);
            let looked = Instant::now();
            // Looks that are missed are not made up for.
            while next <= looked {
                next += interval;
            }
            if self.rest_until(next) {
                if looked.elapsed() >= LEAST_INTERVAL {
                    self.look(&mut sampler);
                }
                break;
            }
        }
    }

    fn look(&self, sampler: &mut Sampler) {
        let records = sampler.look();
        let mut state = self.state();
        state.observe(records);
        state.flush();
    }

    /// Waits, and says whether it is time to stop.
    fn rest_until(&self, until: Instant) -> bool {
        let stopping = self.stopping.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_duration_since(Instant::now());
        let rested = self.stopped.wait_timeout_while(stopping, left, |stopping| !*stopping);
        *rested.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("record", &self.record).finish_non_exhaustive()
    }
}
