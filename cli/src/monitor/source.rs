//! Sources of records: the monitor of this machine, and the program that writes the same recording.

use std::thread;
use std::time::Duration;

use gpu_tuned_observe::monitor::{Monitor, Options};
use gpu_tuned_observe::recording::{Record, Tail, now};

use super::MonitorArgs;
use crate::error::Error;

pub(super) struct Source {
    monitor: Monitor,
    /// Start time, in seconds since 1970.
    begun: f64,
    next: u64,
    tail: Option<Tail>,
    pid: Option<u32>,
}

impl Source {
    pub(super) fn open(args: &MonitorArgs) -> Result<Self, Error> {
        let mut options = Options::default().interval(args.interval);
        options = match args.pid {
            Some(pid) => options.pid(pid),
            None => options.no_program(),
        };
        if !args.gpus.is_empty() {
            options = options.gpus(args.gpus.clone());
        }
        if let Some(path) = &args.record {
            options = options.record(path);
        }
        let begun = now();
        let tail = args.record.as_deref().map(|path| Tail::new(path, begun));
        let monitor = Monitor::start(&options)?;
        let there: Vec<u32> = monitor.latest().start.gpus.iter().map(|gpu| gpu.gpu).collect();
        if let Some(wanted) = args.gpus.iter().find(|wanted| !there.contains(wanted)) {
            let machine = gpu_tuned_nvml::detect();
            let mut numbers: Vec<_> = machine.gpus.iter().map(|gpu| gpu.index.to_string()).collect();
            numbers.dedup();
            let wanted = u64::from(*wanted);
            return Err(if numbers.is_empty() {
                Error::WithoutGpus { wanted, because: machine.trouble, help: "without --gpu, the host is watched" }
            } else {
                Error::NoGpu { wanted, whose: "driver shows", there: numbers }
            });
        }
        let source = Self { monitor, begun, next: 0, tail, pid: args.pid };
        source.find_process()?;
        Ok(source)
    }

    /// Refuses a process that is missing in the first sample.
    fn find_process(&self) -> Result<(), Error> {
        let Some(pid) = self.pid else { return Ok(()) };
        loop {
            match self.monitor.latest().host {
                Some(host) if host.process.is_none() => return Err(Error::NoProcess { pid }),
                Some(_) => return Ok(()),
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Start time, in seconds since 1970.
    pub(super) const fn begun(&self) -> f64 {
        self.begun
    }

    pub(super) fn news(&mut self) -> Result<Vec<Record>, Error> {
        // A recording must not lack samples that are shown.
        self.monitor.written()?;
        let (next, mut records) = self.monitor.since(self.next);
        self.next = next;
        records.extend(self.tail.as_mut().map(Tail::news).unwrap_or_default());
        Ok(records)
    }

    /// Returns true if a sample of the host shows the end of the watched program.
    pub(super) fn has_ended(&self, record: &Record) -> bool {
        matches!(record, Record::Host(host) if self.pid.is_some() && host.process.is_none())
    }

    pub(super) fn close(self) -> Result<(), Error> {
        self.monitor.stop()?;
        Ok(())
    }
}
