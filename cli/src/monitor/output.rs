//! Output while the machine is watched: lines for pipes and logs, JSON, and tables.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use gpu_tuned_core::printable::for_json;
use gpu_tuned_observe::monitor::amounts::{gib, part_of, rate, reasons, short, size, watts};
use gpu_tuned_observe::monitor::{GpuTimeline, Summary, Timeline, csv_header, csv_line};
use gpu_tuned_observe::recording::{GpuSample, HostSample, Record, StepRecord};
use serde::Serialize;

use super::MonitorArgs;
use crate::error::Error;
use crate::files::{CSV_BEGIN, check_replaceable};
use crate::output::{Form, SCHEMA_VERSION, one_line, print};

pub(super) enum Ended {
    Whole(Box<Timeline>),
    /// The reader has closed the output.
    NobodyReads,
}

/// Records on their way to the standard output and a table.
pub(super) struct Output {
    kind: Kind,
    table: Option<Table>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lines,
    Json,
    Csv,
}

/// A file of comma-separated values, written a line at a time.
pub(super) struct Table {
    path: PathBuf,
    file: File,
}

impl Output {
    pub(super) fn new(is_json: bool, args: &MonitorArgs) -> Result<Self, Error> {
        let kind = match (is_json, args.prints_csv()) {
            (true, _) => Kind::Json,
            (_, true) => Kind::Csv,
            _ => Kind::Lines,
        };
        let table = args.csv_file().map(|path| Table::create(path)).transpose()?;
        if kind == Kind::Csv {
            print(&csv_header(), Form::Data).map_err(Error::Print)?;
        }
        Ok(Self { kind, table })
    }

    /// Writes a record that is in `timeline`. Returns false when the reader has closed the output.
    pub(super) fn write(&mut self, record: &Record, timeline: &Timeline) -> Result<bool, Error> {
        if let Some(table) = &mut self.table {
            table.write(record, timeline)?;
        }
        let (text, form) = match self.kind {
            Kind::Lines => (line(record, timeline), Form::Text),
            Kind::Json => (Some(line_of(None, record)), Form::Data),
            Kind::Csv => (csv_line(record, uuid(record, timeline)), Form::Data),
        };
        text.map_or(Ok(true), |text| print(&text, form)).map_err(Error::Print)
    }
}

impl Table {
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        check_replaceable(path, "a table of samples", CSV_BEGIN)?;
        let failure = |source| Error::Write { path: path.to_owned(), source };
        let mut file = File::create(path).map_err(failure)?;
        file.write_all(csv_header().as_bytes()).map_err(failure)?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(super) fn write(&mut self, record: &Record, timeline: &Timeline) -> Result<(), Error> {
        let Some(line) = csv_line(record, uuid(record, timeline)) else { return Ok(()) };
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|source| Error::Write { path: self.path.clone(), source })
    }
}

/// A record or the summary, with the version of JSON documents.
#[derive(Serialize)]
struct Line<'a, T> {
    schema_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(flatten)]
    body: &'a T,
}

pub(super) fn summary_line(summary: &Summary) -> String {
    line_of(Some("summary"), summary)
}

fn line_of(kind: Option<&str>, body: &impl Serialize) -> String {
    let line = Line { schema_version: SCHEMA_VERSION, kind, body };
    for_json(&serde_json::to_string(&line).expect("BUG: records are always JSON")).into_owned() + "\n"
}

fn uuid<'a>(record: &Record, timeline: &'a Timeline) -> Option<&'a str> {
    let Record::Gpu(sample) = record else { return None };
    let is_it = |track: &&GpuTimeline| (track.gpu.gpu, track.gpu.mig_slot) == (sample.gpu, sample.mig_slot);
    timeline.gpus.iter().find(is_it)?.gpu.uuid.as_deref()
}

/// Line of a record that is in `timeline`, if it has one.
pub(super) fn line(record: &Record, timeline: &Timeline) -> Option<String> {
    let line = |at: f64, text: String| Some(format!("{}  {text}\n", time(at - timeline.begun)));
    match record {
        Record::Gpu(sample) => line(sample.at, gpu(sample, timeline)),
        Record::Host(sample) => line(sample.at, host(sample, timeline)),
        Record::Step(record) if timeline.steps.front().is_some_and(|first| first.rank == record.rank) => {
            line(record.at, step(record))
        }
        Record::Run(run) => line(run.at, format!("training `{}` begins: process {}", one_line(&run.workload), run.pid)),
        Record::Value(value) => line(value.at, format!("{} = {}", one_line(&value.name), short(value.value))),
        _ => None,
    }
}

/// A time; negative before the start.
fn time(seconds: f64) -> String {
    format!("{:>8.1} s", if seconds.abs() < 0.05 { 0.0 } else { seconds })
}

fn gpu(sample: &GpuSample, timeline: &Timeline) -> String {
    let track = timeline.gpus.iter().find(|track| (track.gpu.gpu, track.gpu.mig_slot) == (sample.gpu, sample.mig_slot));
    let mut parts = vec![format!("{:<7}", track.map_or_else(|| format!("GPU {}", sample.gpu), GpuTimeline::number))];
    if let Some(trouble) = &sample.trouble {
        parts.push(one_line(trouble));
        return parts.join("  ");
    }
    parts.extend(sample.utilisation_percent.map(|percent| format!("{percent:>3.0} %")));
    parts.extend(sample.sm_activity_percent.map(|percent| format!("SM {percent:>3.0} %")));
    let total = track.and_then(|track| track.gpu.memory_total_bytes);
    parts.extend(
        sample.memory_used_bytes.map(|used| part_of(gib(used as f64), total.map(|total| gib(total as f64)), "GiB", 1)),
    );
    parts.extend(sample.power_mw.map(|power| part_of(watts(power), sample.power_limit_mw.map(watts), "W", 0)));
    parts.extend(sample.sm_clock_mhz.map(|clock| format!("{clock} MHz")));
    parts.extend(sample.temperature_c.map(|celsius| format!("{celsius} °C")));
    let traffic = sample.pcie_to_gpu_bytes_per_s.zip(sample.pcie_from_gpu_bytes_per_s);
    parts.extend(traffic.map(|(to, from)| format!("PCIe {} to, {} from", rate(to as f64), rate(from as f64))));
    if !sample.throttle.is_empty() {
        parts.push(format!("throttled: {}", reasons(sample)));
    }
    parts.join("  ")
}

fn host(sample: &HostSample, timeline: &Timeline) -> String {
    let mut parts = vec!["host   ".to_owned()];
    parts.extend(sample.cpu_percent.map(|percent| format!("{percent:>3.0} %")));
    let total = Some(timeline.start.memory_bytes).filter(|total| *total > 0).map(|total| gib(total as f64));
    parts.extend(sample.memory_used_bytes.map(|used| part_of(gib(used as f64), total, "GiB", 1)));
    if let Some(process) = &sample.process {
        parts.push(format!("process {}", process.pid));
        parts.extend(process.cpu_percent.map(|percent| format!("{percent:.0} %")));
        parts.extend(process.memory_bytes.map(size));
        parts.extend(process.busiest_thread_percent.map(|percent| format!("busiest thread {percent:.0} %")));
    }
    parts.join("  ")
}

fn step(step: &StepRecord) -> String {
    let rate = (step.seconds > 0.0).then(|| format!("  {} samples/s", short(step.samples as f64 / step.seconds)));
    let loss = step.loss.map(|loss| format!("  loss {}", short(loss)));
    format!("step {}{}{}", step.step, rate.unwrap_or_default(), loss.unwrap_or_default())
}
