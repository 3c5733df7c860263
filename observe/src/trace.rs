//! Traces of training steps that open in Perfetto (<https://ui.perfetto.dev>) and in Chrome's own viewer.
//!
//! Both kinds use the trace-event format (JSON):
//!
//! * **From a recording**, with [`from_records`]: every step with its phases, and figures of GPUs, host and program as
//!   counters. A recording has the sums of each phase, so the phases are shown one after the other, without micro-batches.
//! * **Live**, with the environment variable `GPU_TUNED_TRACE=FILE`: a session with feature `burn` records begin and end of
//!   each phase of each micro-batch, and of each batch of the loader's workers. It does so in steps 11 to 20, or in those of
//!   `GPU_TUNED_TRACE_STEPS=FIRST..LAST`, and writes the file after the last of them.
//!
//! Times are of the host's clock. The device works beside the host: the wait for it shows as `drain`.
//!
//! ```
//! use gpu_tuned_observe::recording::{Record, StepRecord};
//! use gpu_tuned_observe::trace::{self, Steps};
//!
//! let mut step = StepRecord::new(100.0, 1);
//! step.seconds = 0.5;
//! step.drain_s = Some(0.4);
//! let records = [Record::Step(Box::new(step))];
//! let mut json = Vec::new();
//! trace::from_records(&records, Steps::ALL).expect("there is a step").write(&mut json)?;
//! assert!(String::from_utf8_lossy(&json).contains(r#""name":"drain""#));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gpu_tuned_core::atomic_file;
use serde::Serialize;
use serde::ser::Serializer;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::log;
use crate::metrics::{Figure, GPU_FIGURES, HOST_FIGURES};
use crate::recording::{Record, StepRecord};

/// Environment variable with the file of a live trace.
pub const VARIABLE: &str = "GPU_TUNED_TRACE";
/// Environment variable with the steps of a live trace.
pub const STEPS_VARIABLE: &str = "GPU_TUNED_TRACE_STEPS";

/// A range of steps with both ends: `11..20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The first step, from 1.
    pub first: u64,
    /// The last step.
    pub last: u64,
}

/// Text that is no range of steps.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` names no steps: expected FIRST..LAST, such as 11..20, or one step; the first step is 1")]
pub struct StepsError {
    /// The text.
    pub text: String,
}

/// Ten steps after kernels were compiled and autotuned.
impl Default for Steps {
    fn default() -> Self {
        Self { first: 11, last: 20 }
    }
}

impl Steps {
    /// All steps.
    pub const ALL: Self = Self { first: 1, last: u64::MAX };

    /// Returns whether the range has a step.
    pub const fn has(self, step: u64) -> bool {
        self.first <= step && step <= self.last
    }
}

impl FromStr for Steps {
    type Err = StepsError;

    fn from_str(text: &str) -> Result<Self, StepsError> {
        let number = |text: &str| text.trim().parse().ok().filter(|step| *step > 0);
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let steps = number(first).zip(number(last.strip_prefix('=').unwrap_or(last)));
        let steps = steps.filter(|(first, last)| first <= last);
        let (first, last) = steps.ok_or_else(|| StepsError { text: text.to_owned() })?;
        Ok(Self { first, last })
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.first, self.last)
    }
}

/// A trace: processes with rows of spans, and counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    events: Vec<Event>,
    /// Numbers of the rows by process and name.
    tracks: BTreeMap<(u32, String), u32>,
}

/// A row of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    process: u32,
    thread: u32,
}

/// An event by the keys of the format. Metadata have no time; only spans have a length.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Event {
    name: String,
    #[serde(rename = "pid")]
    process: u32,
    #[serde(rename = "tid")]
    thread: u32,
    #[serde(rename = "ph")]
    phase: &'static str,
    #[serde(rename = "ts", skip_serializing_if = "Option::is_none")]
    begin: Option<Micros>,
    #[serde(rename = "dur", skip_serializing_if = "Option::is_none")]
    length: Option<Micros>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    args: Map<String, Value>,
}

/// Microseconds in the file, and nanoseconds in memory, so that spans that touch do so in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Micros(i64);

impl Micros {
    fn new(micros: f64) -> Self {
        Self((micros * 1e3).round() as i64)
    }
}

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1e3)
    }
}

impl Trace {
    /// Names a process.
    pub fn name_process(&mut self, process: u32, name: &str) {
        self.metadata("process_name", process, 0, "name", name.into());
    }

    /// Returns the row of a process with this name. Rows are shown in the order of their first use.
    pub fn track(&mut self, process: u32, name: &str) -> Track {
        if let Some(thread) = self.tracks.get(&(process, name.to_owned())) {
            return Track { process, thread: *thread };
        }
        let thread = self.tracks.len() as u32 + 1;
        self.tracks.insert((process, name.to_owned()), thread);
        self.metadata("thread_name", process, thread, "name", name.into());
        self.metadata("thread_sort_index", process, thread, "sort_index", thread.into());
        Track { process, thread }
    }

    /// Adds a span, with begin and length in microseconds. Within a row, a span that begins within another must end within
    /// it.
    pub fn complete(&mut self, track: Track, name: &str, at: f64, length: f64, figures: &[(&'static str, f64)]) {
        let (begin, end) = (Micros::new(at), Micros::new(at + length.max(0.0)));
        let Track { process, thread } = track;
        let length = Some(Micros(end.0.saturating_sub(begin.0)));
        let (name, args) = (name.to_owned(), finite(figures));
        self.events.push(Event { name, process, thread, phase: "X", begin: Some(begin), length, args });
    }

    /// Adds figures of a process, from the moment `at` on, in microseconds.
    pub fn counter(&mut self, process: u32, name: &str, at: f64, figures: &[(&'static str, f64)]) {
        let (name, begin, args) = (name.to_owned(), Some(Micros::new(at)), finite(figures));
        if !args.is_empty() {
            self.events.push(Event { name, process, thread: 0, phase: "C", begin, length: None, args });
        }
    }

    fn metadata(&mut self, name: &str, process: u32, thread: u32, key: &str, value: Value) {
        let (name, args) = (name.to_owned(), Map::from_iter([(key.to_owned(), value)]));
        self.events.push(Event { name, process, thread, phase: "M", begin: None, length: None, args });
    }

    /// Writes the trace to a file as JSON, completely or not at all.
    ///
    /// # Errors
    ///
    /// If the file cannot be written; an existing file then stays unchanged.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut events: Vec<&Event> = self.events.iter().collect();
        // Metadata come first. Of spans that begin together, the enclosing one comes first.
        events.sort_by_key(|event| (event.begin, Reverse(event.length)));
        atomic_file::replace_with(path, |file| {
            let mut buffered = io::BufWriter::new(file);
            write_events(&mut buffered, events)?;
            buffered.flush()
        })
    }
}

/// Converts the figures that JSON can represent.
fn finite(figures: &[(&'static str, f64)]) -> Map<String, Value> {
    let finite = figures.iter().filter(|(_, value)| value.is_finite());
    finite.map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
}

/// Writes the format's JSON object, and returns the number of events.
fn write_events(mut into: impl Write, events: impl IntoIterator<Item = impl Serialize>) -> io::Result<usize> {
    into.write_all(br#"{"otherData":{"producer":"gpu-tuned"},"displayTimeUnit":"ms","traceEvents":["#)?;
    let mut count = 0;
    for event in events {
        into.write_all(if count == 0 { b"" } else { b"," })?;
        serde_json::to_writer(&mut into, &event)?;
        count += 1;
    }
    into.write_all(b"]}")?;
    Ok(count)
}

/// Spans in a trace at most: hundreds of steps with many micro-batches.
const MAX_SPANS: usize = 200_000;

/// Records spans during the requested steps, and writes them after the last of these steps. Clones share the trace.
#[derive(Clone)]
pub struct Tracer(Arc<Live>);

struct Live {
    file: PathBuf,
    steps: Steps,
    begin: Instant,
    is_on: AtomicBool,
    taken: AtomicU64,
    spans: Mutex<Spans>,
}

#[derive(Default)]
struct Spans {
    trace: Trace,
    is_written: bool,
}

impl Tracer {
    /// Creates the tracer that the environment asks for with [`VARIABLE`] and [`STEPS_VARIABLE`], else the one that the
    /// program asks for. Steps that cannot be parsed cause a warning.
    pub fn from_env_or(asked: Option<(PathBuf, Steps)>) -> Option<Self> {
        let (file, mut steps) = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            Some(file) => (file.into(), Steps::default()),
            None => asked?,
        };
        match std::env::var(STEPS_VARIABLE).map(|text| text.parse()) {
            Ok(Ok(named)) => steps = named,
            Ok(Err(error)) => log::warn_user(&format!("{STEPS_VARIABLE}: {error}; steps {steps} are traced")),
            Err(_) => {}
        }
        Some(Self::new(file, steps))
    }

    /// Creates a tracer that writes `steps` to `file`.
    pub fn new(file: PathBuf, steps: Steps) -> Self {
        let is_on = AtomicBool::new(steps.first <= 1);
        let (begin, taken) = (Instant::now(), AtomicU64::new(0));
        let tracer = Self(Arc::new(Live { file, steps, begin, is_on, taken, spans: Mutex::default() }));
        tracer.0.spans().trace.name_process(std::process::id(), &program());
        tracer
    }

    /// Returns whether spans are recorded now.
    pub fn is_on(&self) -> bool {
        self.0.is_on.load(Relaxed)
    }

    /// Adds a span to a row.
    pub fn span(&self, track: &str, name: &str, begin: Instant, end: Instant, figures: &[(&'static str, f64)]) {
        let micros = |at: Instant| at.saturating_duration_since(self.0.begin).as_secs_f64() * 1e6;
        let mut spans = self.0.spans();
        if !spans.is_written && spans.trace.events.len() < MAX_SPANS {
            let track = spans.trace.track(std::process::id(), track);
            let (at, length) = (micros(begin), micros(end) - micros(begin));
            spans.trace.complete(track, name, at, length, figures);
        }
    }

    /// Ends a step of a rank. The steps of the first rank switch the trace on and off.
    pub fn end_step(&self, rank: u64, step: u64) {
        if rank != 0 {
            return;
        }
        self.0.taken.store(step, Relaxed);
        if step + 1 >= self.0.steps.first && step < self.0.steps.last {
            self.0.is_on.store(true, Relaxed);
        } else if step >= self.0.steps.last && self.0.is_on.swap(false, Relaxed) {
            self.0.write();
        }
    }
}

impl Live {
    fn spans(&self) -> MutexGuard<'_, Spans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) {
        let trace = {
            let mut spans = self.spans();
            spans.is_written = true;
            std::mem::take(&mut spans.trace)
        };
        match trace.save(&self.file) {
            Ok(()) => tracing::info!("trace of steps {} written to `{}`", self.steps, self.file.display()),
            Err(error) => log::warn_user(&format!("no trace: `{}` cannot be written: {error}", self.file.display())),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let taken = self.taken.load(Relaxed);
        if self.spans().is_written {
            return;
        }
        if taken < self.steps.first {
            log::warn_user(&format!(
                "no trace: the run ended after {taken} steps, before steps {}; name others with {STEPS_VARIABLE}",
                self.steps
            ));
            return;
        }
        self.write();
    }
}

/// Name of this program.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or(Path::new("program").as_os_str());
    name.to_string_lossy().into_owned()
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("file", &self.0.file).field("steps", &self.0.steps).finish_non_exhaustive()
    }
}

/// Process of the machine's counters: a number that no program has.
const MACHINE: u32 = 1 << 23;
/// Process of a program without a recorded ID.
const PROGRAM: u32 = 1;

/// The trace of a recording. Its events are drawn while they are written.
#[derive(Clone, Copy, Debug)]
pub struct RecordedTrace<'r> {
    records: &'r [Record],
    steps: Steps,
    span: (f64, f64),
}

/// Returns the trace of a recording: the requested steps, with the figures of their time. `None` if there are none.
pub fn from_records(records: &[Record], steps: Steps) -> Option<RecordedTrace<'_>> {
    Some(RecordedTrace { records, steps, span: span(records, steps)? })
}

impl RecordedTrace<'_> {
    /// Writes the trace as JSON, with the events of each record in the order of the recording, and returns their number.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    pub fn write(&self, into: impl Write) -> io::Result<usize> {
        let Self { records, steps, span: (begin, end) } = *self;
        let mut drawing = Drawing { begin, program: PROGRAM, ..Drawing::default() };
        drawing.trace.name_process(MACHINE, "machine");
        if !records.iter().any(|record| record.run().is_some()) {
            drawing.trace.name_process(PROGRAM, "training program");
        }
        let named = std::mem::take(&mut drawing.trace.events);
        let drawn = records.iter().flat_map(|record| {
            drawing.record(record, steps, begin..=end);
            std::mem::take(&mut drawing.trace.events)
        });
        write_events(into, named.into_iter().chain(drawn))
    }
}

/// Returns begin and end of the shown time; `None` if there is nothing to show.
fn span(records: &[Record], steps: Steps) -> Option<(f64, f64)> {
    let of_steps = records.iter().filter_map(Record::step).filter(|step| steps.has(step.step));
    let of_steps = of_steps.map(|step| (step.at - step.seconds, step.at));
    let widest = |all: (f64, f64), one: (f64, f64)| (all.0.min(one.0), all.1.max(one.1));
    let all_times = || records.iter().filter_map(Record::at).map(|at| (at, at)).reduce(widest);
    match (of_steps.reduce(widest), steps == Steps::ALL) {
        // All records, also those before the first step and after the last.
        (Some(found), true) => all_times().map(|all| widest(found, all)),
        (Some(found), false) => Some(found),
        (None, true) => all_times(),
        (None, false) => None,
    }
}

#[derive(Default)]
struct Drawing {
    trace: Trace,
    /// Time of the trace's zero.
    begin: f64,
    program: u32,
    /// End of the last step of each rank, in microseconds.
    ended: BTreeMap<(u32, u64), f64>,
}

impl Drawing {
    fn micros(&self, at: f64) -> f64 {
        (at - self.begin) * 1e6
    }

    fn record(&mut self, record: &Record, steps: Steps, shown: RangeInclusive<f64>) {
        match record {
            Record::Run(run) => {
                self.program = run.pid;
                self.trace.name_process(run.pid, &run.workload);
            }
            Record::Step(step) if steps.has(step.step) => self.step(step),
            Record::Gpu(sample) if shown.contains(&sample.at) => {
                let slot = sample.mig_slot.map(|slot| format!(" slice {slot}")).unwrap_or_default();
                self.figures(&GPU_FIGURES, &format!("GPU {}{slot}", sample.gpu), sample.at, sample);
            }
            Record::Host(sample) if shown.contains(&sample.at) => {
                self.figures(&HOST_FIGURES, "host", sample.at, sample);
            }
            Record::Value(value) if shown.contains(&value.at) => {
                let micros = self.micros(value.at);
                self.trace.counter(self.program, &value.name, micros, &[("value", value.value)]);
            }
            _ => {}
        }
    }

    /// Adds a step, and below it its phases, one after the other.
    fn step(&mut self, step: &StepRecord) {
        let rank = if step.rank == 0 { String::new() } else { format!(" of rank {}", step.rank) };
        let end = self.micros(step.at);
        // The lengths of steps and the times of their ends come from different clocks.
        let ended = self.ended.insert((self.program, step.rank), end).unwrap_or(f64::MIN);
        let begin = (end - step.seconds * 1e6).max(ended).min(end);
        let track = self.trace.track(self.program, &format!("steps{rank}"));
        let mut figures = vec![("samples", step.samples as f64), ("micro_batches", step.micro_batches as f64)];
        figures.extend(step.loss.map(|loss| ("loss", loss)));
        figures.extend(step.gradient_norm.map(|norm| ("gradient_norm", norm)));
        figures.extend(step.queued.map(|queued| ("queued", queued as f64)));
        self.trace.complete(track, &format!("step {}", step.step), begin, end - begin, &figures);
        let parts = [
            ("loader", "wait for loader", step.waited_s),
            ("program", "outside", step.outside_s),
            ("upload", "upload", step.upload_s),
            ("forward", if step.backward_s.is_some() { "forward" } else { "forward and backward" }, step.loss_s),
            ("backward", "backward", step.backward_s),
            ("exchange", "exchange", step.exchange_s),
            ("optimizer", "optimizer", step.update_s),
            ("drain", "drain", step.drain_s),
        ];
        let mut at = begin;
        for (track, name, seconds) in parts {
            let length = seconds.map(|seconds| (seconds * 1e6).min(end - at)).filter(|length| *length > 0.0);
            let Some(length) = length else { continue };
            let track = self.trace.track(self.program, &format!("{track}{rank}"));
            self.trace.complete(track, name, at, length, &[]);
            at += length;
        }
        let pools = [("in_use", step.in_use_bytes), ("reserved", step.reserved_bytes)];
        let pools: Vec<_> = pools.into_iter().filter_map(|(name, bytes)| Some((name, bytes? as f64))).collect();
        let at = end;
        self.trace.counter(self.program, &format!("memory pools{rank} (bytes)"), at, &pools);
        if let Some(loss) = step.loss {
            self.trace.counter(self.program, "loss", at, &[("loss", loss)]);
        }
    }

    /// Adds a counter for each figure of a sample.
    fn figures<S>(&mut self, figures: &[Figure<S>], device: &str, at: f64, sample: &S) {
        for figure in figures {
            if let Some(value) = (figure.of)(sample) {
                let at = self.micros(at);
                self.trace.counter(MACHINE, &format!("{device} {}", figure.key), at, &[("value", value)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Steps;

    #[test]
    fn steps_are_read() {
        for (text, first, last) in [("11..20", 11, 20), ("3", 3, 3), (" 1 .. 2 ", 1, 2), ("4..=6", 4, 6)] {
            assert_eq!(text.parse(), Ok(Steps { first, last }), "{text}");
        }
        for text in ["", "0", "0..3", "5..4", "..3", "3..", "a..b", "1...3"] {
            assert!(text.parse::<Steps>().is_err(), "{text}");
        }
    }
}
