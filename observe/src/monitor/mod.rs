//! Monitoring of a training run, from inside the program or beside it: GPUs, host, and values of the program.
//!
//! A [`Monitor`] takes samples at intervals, in a thread of its own, until it is dropped. It keeps the last samples, a
//! bounded history, and a summary. It can append all records to a [recording](crate::recording) for `cargo gpu-tuned
//! monitor --replay` and for diagnosis. Without a GPU or a driver it samples the host, and [`Latest::start`] has the reason.
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

pub mod amounts;
#[cfg(feature = "nvml")]
mod driver;
mod sampler;
mod summary;
mod timeline;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;
use thiserror::Error;

pub use crate::export::exposition::to_prometheus;
pub use crate::export::tables::{csv_header, csv_line};
pub use crate::metrics::{Figure, GPU_FIGURES, HOST_FIGURES, throttle_key};
use crate::recording::{GpuSample, HostSample, Record, Start, Value, Writer, now};
pub use crate::stats::{Series, Stats};
pub use sampler::{LEAST_INTERVAL, Options, Sampler};
pub use summary::{Gathering, GpuSummary, StepSummary, Summary};
pub use timeline::{GpuTimeline, Timeline};

/// Samples the machine at intervals, in a thread of its own, until it is stopped or dropped.
#[derive(Debug)]
pub struct Monitor {
    state: Arc<Mutex<State>>,
    /// Ends the thread when dropped.
    sampling: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A monitor that cannot start, or cannot write its recording.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum MonitorError {
    /// The recording cannot be opened or written.
    #[error("cannot write the recording `{}`: {cause}", path.display())]
    Record { path: PathBuf, cause: io::Error },
    /// The file exists and is no recording.
    #[error("`{}` exists and is no recording: nothing was appended; name another file", path.display())]
    NoRecording { path: PathBuf },
    /// The system cannot start a thread.
    #[error("cannot start the monitor's thread: {cause}")]
    Thread { cause: io::Error },
}

impl Monitor {
    /// Starts a monitor, and its recording at once.
    ///
    /// # Errors
    ///
    /// [`MonitorError`]. A missing driver is no error.
    pub fn start(options: &Options) -> Result<Self, MonitorError> {
        let file = options.record.clone().map(open).transpose()?;
        let sampler = Sampler::open(options);
        let mut state = State { max_history: options.history, file, ..State::default() };
        state.observe(vec![Record::Start(sampler.start())]);
        state.flush();
        state.written()?;
        let state = Arc::new(Mutex::new(state));
        let (sampling, stopped) = channel();
        let (sampled, interval) = (Arc::clone(&state), options.interval);
        let thread = thread::Builder::new().name("gpu-tuned-monitor".to_owned());
        let thread = thread.spawn(move || keep_sampling(&sampled, sampler, interval, &stopped));
        let thread = Some(thread.map_err(|cause| MonitorError::Thread { cause })?);
        Ok(Self { state, sampling: Some(sampling), thread })
    }

    /// Records a value of the program, such as `valid/loss`, as of now.
    pub fn value(&self, name: impl Into<String>, value: f64) {
        locked(&self.state).observe(vec![Record::Value(Value::new(now(), name, value))]);
    }

    /// Returns the last record of each device and value.
    pub fn latest(&self) -> Latest {
        locked(&self.state).latest.clone()
    }

    /// Returns the summary so far.
    pub fn summary(&self) -> Summary {
        locked(&self.state).gathering.summary()
    }

    /// Returns the kept records, the oldest first.
    pub fn history(&self) -> Vec<Record> {
        locked(&self.state).history.iter().cloned().collect()
    }

    /// Returns the kept records from number `from` on, and the number to continue with. The first record has number 0.
    pub fn since(&self, from: u64) -> (u64, Vec<Record>) {
        locked(&self.state).since(from)
    }

    /// Formats the kept samples as CSV with a header.
    pub fn to_csv(&self) -> String {
        let state = locked(&self.state);
        let uuid = |record: &Record| match record {
            Record::Gpu(sample) => state.latest.start.gpu(sample.gpu, sample.mig_slot)?.uuid.as_deref(),
            _ => None,
        };
        let lines = state.history.iter().filter_map(|record| csv_line(record, uuid(record)));
        [csv_header()].into_iter().chain(lines).collect()
    }

    /// Formats the last samples for Prometheus: see [`to_prometheus`].
    pub fn to_prometheus(&self) -> String {
        let state = locked(&self.state);
        to_prometheus(&state.latest, &state.gathering.summary())
    }

    /// Takes a last sample, stops, and returns the summary.
    ///
    /// # Errors
    ///
    /// [`MonitorError::Record`] if the recording could not be written.
    pub fn stop(mut self) -> Result<Summary, MonitorError> {
        self.end();
        let mut state = locked(&self.state);
        state.written()?;
        Ok(state.gathering.summary())
    }

    /// Writes all records to the file. Monitoring goes on if that fails. The error is returned once, here or by
    /// [`stop`](Self::stop).
    ///
    /// # Errors
    ///
    /// [`MonitorError::Record`] if the recording could not be written.
    pub fn written(&self) -> Result<(), MonitorError> {
        let mut state = locked(&self.state);
        state.flush();
        state.written()
    }

    fn end(&mut self) {
        self.sampling = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread must not reach the program.
            let _ = thread.join();
        }
    }
}

/// Opens a recording to append to. A file that is no recording is left alone.
fn open(path: PathBuf) -> Result<(PathBuf, Writer), MonitorError> {
    match Writer::append(&path) {
        Ok(writer) => Ok((path, writer)),
        Err(cause) if cause.kind() == io::ErrorKind::InvalidData => Err(MonitorError::NoRecording { path }),
        Err(cause) => Err(MonitorError::Record { path, cause }),
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.end();
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes samples until the monitor stops, and a last one then, unless the interval would be too short.
fn keep_sampling(state: &Mutex<State>, mut sampler: Sampler, interval: Duration, stopped: &Receiver<()>) {
    let mut sample = || {
        let records = sampler.sample();
        let mut state = locked(state);
        state.observe(records);
        state.flush();
    };
    let mut next = Instant::now();
    loop {
        sample();
        let now = Instant::now();
        // Missed samples are not made up for.
        while next <= now {
            next += interval;
        }
        if stopped.recv_timeout(next - now) != Err(RecvTimeoutError::Timeout) {
            if now.elapsed() >= LEAST_INTERVAL {
                sample();
            }
            return;
        }
    }
}

/// The last record of each device and value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Latest {
    /// Descriptions of the devices, and reasons for missing ones.
    pub start: Start,
    /// GPUs, each followed by its MIG slices; empty before the first sample.
    pub gpus: Vec<GpuSample>,
    /// Host and program.
    pub host: Option<HostSample>,
    /// Last values that the program recorded, by name.
    pub values: BTreeMap<String, Value>,
}

/// State that a monitor and its thread share.
#[derive(Debug, Default)]
struct State {
    latest: Latest,
    history: VecDeque<Record>,
    /// Records that were dropped from the history.
    dropped: u64,
    max_history: usize,
    gathering: Gathering,
    /// The recording, unless it has ended.
    file: Option<(PathBuf, Writer)>,
    /// The error that ended the recording.
    failure: Option<MonitorError>,
}

impl Latest {
    /// Replaces the last record of its kind.
    pub fn observe(&mut self, record: &Record) {
        match record {
            Record::Start(start) => self.start = start.clone(),
            Record::Gpu(sample) => {
                let key = (sample.gpu, sample.mig_slot);
                match self.gpus.binary_search_by_key(&key, |gpu| (gpu.gpu, gpu.mig_slot)) {
                    Ok(found) => self.gpus[found] = sample.clone(),
                    Err(between) => self.gpus.insert(between, sample.clone()),
                }
            }
            Record::Host(sample) => self.host = Some(sample.clone()),
            Record::Value(value) => {
                self.values.insert(value.name.clone(), value.clone());
            }
            _ => {}
        }
    }
}

impl State {
    /// Adds records, and writes them to the recording.
    fn observe(&mut self, records: Vec<Record>) {
        for record in records {
            self.latest.observe(&record);
            self.gathering.observe(&record);
            self.write(|writer| writer.write(&record));
            self.history.push_back(record);
            while self.history.len() > self.max_history {
                self.history.pop_front();
                self.dropped += 1;
            }
        }
    }

    /// Writes the buffer of the recording to the file.
    fn flush(&mut self) {
        self.write(Writer::flush);
    }

    /// Returns the kept records from number `from` on, and the number of the next record.
    fn since(&self, from: u64) -> (u64, Vec<Record>) {
        let next = self.dropped + self.history.len() as u64;
        let skipped = usize::try_from(from.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        (next, self.history.iter().skip(skipped).cloned().collect())
    }

    /// Writes to the recording. If that fails, the recording ends, and monitoring goes on.
    fn write(&mut self, act: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let Some(Err(cause)) = self.file.as_mut().map(|(_, writer)| act(writer)) else { return };
        tracing::warn!("the recording ends: {cause}");
        self.failure = self.file.take().map(|(path, _)| MonitorError::Record { path, cause });
    }

    /// Returns the error that ended the recording, once.
    fn written(&mut self) -> Result<(), MonitorError> {
        self.failure.take().map_or(Ok(()), Err)
    }
}
