//! One look at everything that is watched.

use crate::recording::{Record, Start, VERSION};

use super::gpus::Gpus;
use super::host::HostWatch;
use super::options::Options;
use crate::host::Host;
use crate::recording::now;

/// Looks at the GPUs, the host and the program, when it is told to.
///
/// [`Monitor`](super::Monitor) does this in a thread of its own.
pub struct Sampler {
    gpus: Gpus,
    host: HostWatch,
}

impl Sampler {
    /// Opens what there is to be opened. A driver that cannot be asked is no error: [`start`](Self::start) says so.
    pub fn open(options: &Options) -> Self {
        let gpus = Gpus::open(options.library.as_deref(), options.gpus.clone());
        Self { gpus, host: HostWatch::new(options.process) }
    }

    /// What there is to be watched.
    pub fn start(&self) -> Start {
        let host = Host::read();
        let mut start = Start::default();
        (start.at, start.version) = (now(), VERSION);
        (start.cores, start.memory_bytes) = (host.cores, host.memory_total.0);
        self.gpus.describe(&mut start);
        start
    }

    /// One record for each GPU and one for the host, and a new [`Start`] before them where a GPU has been taken up.
    pub fn look(&mut self) -> Vec<Record> {
        let (samples, are_more) = self.gpus.look(now);
        let start = are_more.then(|| Record::Start(self.start()));
        let host = self.host.look(now());
        start.into_iter().chain(samples.into_iter().map(Record::Gpu)).chain([Record::Host(host)]).collect()
    }
}
