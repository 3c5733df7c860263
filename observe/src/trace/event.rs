//! Events of the trace-event format.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use gpu_tuned_core::atomic_file;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use serde_json::{Map, Value};

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

    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Writes the trace as JSON.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    pub fn write(&self, into: impl Write) -> io::Result<()> {
        serde_json::to_writer(into, self).map_err(io::Error::from)
    }

    /// Writes the trace to a file, completely or not at all.
    ///
    /// # Errors
    ///
    /// If the file cannot be written; an existing file then stays unchanged.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        atomic_file::replace_with(path, |file| {
            let mut buffered = io::BufWriter::new(file);
            self.write(&mut buffered)?;
            buffered.flush()
        })
    }
}

/// Converts the figures that JSON can represent.
fn finite(figures: &[(&'static str, f64)]) -> Map<String, Value> {
    let finite = figures.iter().filter(|(_, value)| value.is_finite());
    finite.map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
}

/// Serializes as the format's JSON object.
impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut events: Vec<&Event> = self.events.iter().collect();
        // Metadata come first. Of spans that begin together, the enclosing one comes first.
        events.sort_by_key(|event| (event.begin, Reverse(event.length)));
        let mut object = serializer.serialize_struct("Trace", 2)?;
        object.serialize_field("otherData", &BTreeMap::from([("producer", "gpu-tuned")]))?;
        object.serialize_field("displayTimeUnit", "ms")?;
        object.serialize_field("traceEvents", &events)?;
        object.end()
    }
}
