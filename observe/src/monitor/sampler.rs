//! Samples of all devices.

use crate::recording::{Record, Start, VERSION};

use super::gpus::Gpus;
use super::host::HostSampler;
use super::options::Options;
use crate::host::Host;
use crate::recording::now;

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
        let (samples, is_changed) = self.gpus.sample(now);
        let start = is_changed.then(|| Record::Start(self.start()));
        let host = self.host.sample(now());
        start.into_iter().chain(samples.into_iter().map(Record::Gpu)).chain([Record::Host(host)]).collect()
    }
}
