//! Sources of records: the monitor of this machine, and the program that writes the same recording.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use gpu_tuned_observe::monitor::{Monitor, Options};
use gpu_tuned_observe::recording::{Record, now};

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
            let machine = gpu_tuned::detect();
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

/// Reader of a recording that grows.
#[derive(Debug, Default)]
pub(super) struct Tail {
    path: PathBuf,
    /// Start of watching, in seconds since 1970.
    since: f64,
    file: Option<File>,
    /// Begin of an incomplete line.
    begun: Vec<u8>,
}

impl Tail {
    pub(super) fn new(path: &Path, since: f64) -> Self {
        Self { path: path.to_owned(), since, ..Self::default() }
    }

    /// Runs, steps and values since the last call, and the last run from before. Unreadable lines are skipped.
    pub(super) fn news(&mut self) -> Vec<Record> {
        // Pipes and devices cannot be reread.
        if self.file.is_none() && self.path.is_file() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Vec::new() };
        if file.read_to_end(&mut self.begun).is_err() {
            return Vec::new();
        }
        let end = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.begun.drain(..end).collect();
        let records = lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let of_programs = records.filter(|it| matches!(it, Record::Run(_) | Record::Step(_) | Record::Value(_)));
        let is_old = |record: &Record| record.at().is_some_and(|at| at < self.since);
        let (before, news): (Vec<Record>, Vec<Record>) = of_programs.partition(is_old);
        let run = before.into_iter().rfind(|record| matches!(record, Record::Run(_)));
        run.into_iter().chain(news).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::{Record, Tail};

    #[test]
    fn lines_are_read_once_and_when_they_are_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.jsonl");
        let mut tail = Tail::new(&path, 0.0);
        assert!(tail.news().is_empty());
        let append = |text: &str| {
            let mut file = OpenOptions::new().create(true).append(true).open(&path).expect("a file");
            file.write_all(text.as_bytes()).expect("it is written");
        };
        append("{\"kind\":\"step\",\"at\":1.0,\"step\":1}\n{\"kind\":\"host\",\"at\":1.0}\nnonsense\n{\"kind\":\"va");
        assert_eq!(tail.news().len(), 1);
        assert_eq!(tail.news().len(), 0);
        append("lue\",\"at\":2.0,\"name\":\"loss\",\"value\":1.0}\n");
        assert_eq!(tail.news().len(), 1);
    }

    #[test]
    fn of_what_was_before_only_the_last_run_is_news() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.jsonl");
        let line = |kind: &str, at: f64| format!("{{\"kind\":\"{kind}\",\"at\":{at}}}\n");
        let text =
            [("run", 1.0), ("step", 2.0), ("run", 3.0), ("step", 4.0), ("value", 9.0), ("step", 10.0), ("run", 11.0)];
        std::fs::write(&path, text.map(|(kind, at)| line(kind, at)).concat()).expect("it is written");
        let times: Vec<_> = Tail::new(&path, 10.0).news().iter().filter_map(Record::at).collect();
        assert_eq!(times, [3.0, 10.0, 11.0]);
    }
}
