//! Options of a monitor, and samples of all devices.

use std::path::PathBuf;
use std::time::Duration;

use super::gpus::Gpus;
use super::host::HostSampler;
use crate::Host;
use crate::recording::{Record, Start, VERSION, now};

/// Samples the GPUs, the host and a program on request.
///
/// A [`Monitor`](super::Monitor) does so in a thread of its own.
pub struct Sampler {
    gpus: Gpus,
    host: HostSampler,
}

impl Sampler {
    /// Opens the driver. A missing driver is no error: [`start`](Self::start) has the reason.
    pub fn open(options: &Options) -> Self {
        let gpus = Gpus::open(options.library.as_deref(), options.gpus.clone());
        Self { gpus, host: HostSampler::new(options.process) }
    }

    /// Describes the devices.
    pub fn start(&self) -> Start {
        let host = Host::read();
        let mut start = Start::default();
        (start.at, start.version) = (now(), VERSION);
        (start.cores, start.memory_bytes) = (host.cores, host.memory_total.0);
        self.gpus.describe(&mut start);
        start
    }

    /// Takes a sample: one record for each GPU and one for the host. A new [`Start`] comes first if a GPU was added.
    pub fn sample(&mut self) -> Vec<Record> {
        let (samples, is_changed) = self.gpus.sample();
        let start = is_changed.then(|| Record::Start(self.start()));
        let host = self.host.sample(now());
        start.into_iter().chain(samples.into_iter().map(Record::Gpu)).chain([Record::Host(host)]).collect()
    }
}

/// Shortest interval: performance counters need it.
pub const LEAST_INTERVAL: Duration = Duration::from_millis(100);
/// Longest interval.
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Options of a [`Monitor`](super::Monitor): devices, interval and history.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) interval: Duration,
    pub(super) process: Option<u32>,
    pub(super) record: Option<PathBuf>,
    pub(super) history: usize,
    pub(super) library: Option<PathBuf>,
    pub(super) gpus: Option<Vec<u32>>,
}

impl Default for Options {
    /// All GPUs, the host and this program, once per second, with the last 20,000 records kept in memory and none in a file.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            process: Some(std::process::id()),
            record: None,
            history: 20_000,
            library: None,
            gpus: None,
        }
    }
}

impl Options {
    /// Time between samples; at least [`LEAST_INTERVAL`], at most a day.
    #[must_use]
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval: interval.clamp(LEAST_INTERVAL, MAX_INTERVAL), ..self }
    }

    /// Samples this program with its children, in place of the calling program.
    #[must_use]
    pub fn pid(self, pid: u32) -> Self {
        Self { process: Some(pid), ..self }
    }

    /// Samples no program.
    #[must_use]
    pub fn no_program(self) -> Self {
        Self { process: None, ..self }
    }

    /// Appends all records to the recording at this path. The monitored program may write the same file.
    #[must_use]
    pub fn record(self, path: impl Into<PathBuf>) -> Self {
        Self { record: Some(path.into()), ..self }
    }

    /// Records that are kept in memory: for each sample one per GPU, and one for the host.
    #[must_use]
    pub fn history(self, records: usize) -> Self {
        Self { history: records, ..self }
    }

    /// Samples only these GPUs, by the driver's index.
    #[must_use]
    pub fn gpus(self, gpus: impl Into<Vec<u32>>) -> Self {
        Self { gpus: Some(gpus.into()), ..self }
    }

    /// Loads the driver's management library (NVML) from this path instead of its usual places.
    #[must_use]
    pub fn library(self, path: impl Into<PathBuf>) -> Self {
        Self { library: Some(path.into()), ..self }
    }
}
