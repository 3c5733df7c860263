//! Events of the trace-event format.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use gpu_tuned_core::atomic_file;
use serde::ser::{SerializeStruct, Serializer};
use serde::{Serialize, ser::SerializeMap};

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

#[derive(Clone, Debug, PartialEq)]
struct Event {
    name: String,
    data: Data,
    process: u32,
    thread: u32,
    /// Nanoseconds, so that spans that touch do so in the file.
    at: i64,
}

#[derive(Clone, Debug, PartialEq)]
enum Data {
    /// A span with its length in nanoseconds.
    Complete { length: i64, figures: Vec<(&'static str, f64)> },
    /// Figures from this moment on.
    Counter { figures: Vec<(&'static str, f64)> },
    /// The name of a process or a row, or the position of a row.
    Metadata(Meta),
}

#[derive(Clone, Debug, PartialEq)]
enum Meta {
    Name(String),
    Position(u32),
}

impl Trace {
    /// Names a process.
    pub fn name_process(&mut self, process: u32, name: &str) {
        self.metadata("process_name", process, 0, Meta::Name(name.to_owned()));
    }

    /// Returns the row of a process with this name. Rows are shown in the order of their first use.
    pub fn track(&mut self, process: u32, name: &str) -> Track {
        if let Some(thread) = self.tracks.get(&(process, name.to_owned())) {
            return Track { process, thread: *thread };
        }
        let thread = self.tracks.len() as u32 + 1;
        self.tracks.insert((process, name.to_owned()), thread);
        self.metadata("thread_name", process, thread, Meta::Name(name.to_owned()));
        self.metadata("thread_sort_index", process, thread, Meta::Position(thread));
        Track { process, thread }
    }

    /// Adds a span, with begin and length in microseconds. Within a row, a span that begins within another must end within
    /// it.
    pub fn complete(&mut self, track: Track, name: &str, at: f64, length: f64, figures: &[(&'static str, f64)]) {
        let (begin, end) = (nanos(at), nanos(at + length.max(0.0)));
        let (at, data) = (begin, Data::Complete { length: end.saturating_sub(begin), figures: finite(figures) });
        self.events.push(Event { name: name.to_owned(), data, process: track.process, thread: track.thread, at });
    }

    /// Adds figures of a process, from the moment `at` on, in microseconds.
    pub fn counter(&mut self, process: u32, name: &str, at: f64, figures: &[(&'static str, f64)]) {
        let (at, figures) = (nanos(at), finite(figures));
        if !figures.is_empty() {
            self.events.push(Event { name: name.to_owned(), data: Data::Counter { figures }, process, thread: 0, at });
        }
    }

    fn metadata(&mut self, name: &str, process: u32, thread: u32, meta: Meta) {
        self.events.push(Event { name: name.to_owned(), data: Data::Metadata(meta), process, thread, at: i64::MIN });
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

/// Keeps the figures that JSON can represent.
fn finite(figures: &[(&'static str, f64)]) -> Vec<(&'static str, f64)> {
    figures.iter().copied().filter(|(_, value)| value.is_finite()).collect()
}

/// Serializes as the format's JSON object.
impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut events: Vec<&Event> = self.events.iter().collect();
        // Of spans that begin together, the enclosing one comes first.
        events.sort_by_key(|event| (event.at, Reverse(event.length())));
        let mut object = serializer.serialize_struct("Trace", 2)?;
        object.serialize_field("displayTimeUnit", "ms")?;
        object.serialize_field("traceEvents", &events)?;
        object.end()
    }
}

impl Event {
    const fn length(&self) -> i64 {
        match self.data {
            Data::Complete { length, .. } => length,
            Data::Counter { .. } | Data::Metadata(_) => 0,
        }
    }
}

struct Figures<'f>(&'f [(&'static str, f64)]);

impl Serialize for Figures<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut event = serializer.serialize_map(None)?;
        event.serialize_entry("name", &self.name)?;
        event.serialize_entry("pid", &self.process)?;
        event.serialize_entry("tid", &self.thread)?;
        match &self.data {
            Data::Complete { length, figures } => {
                event.serialize_entry("ph", "X")?;
                event.serialize_entry("ts", &micros(self.at))?;
                event.serialize_entry("dur", &micros(*length))?;
                if !figures.is_empty() {
                    event.serialize_entry("args", &Figures(figures))?;
                }
            }
            Data::Counter { figures } => {
                event.serialize_entry("ph", "C")?;
                event.serialize_entry("ts", &micros(self.at))?;
                event.serialize_entry("args", &Figures(figures))?;
            }
            Data::Metadata(meta) => {
                event.serialize_entry("ph", "M")?;
                match meta {
                    Meta::Name(name) => event.serialize_entry("args", &BTreeMap::from([("name", name)]))?,
                    Meta::Position(position) => {
                        event.serialize_entry("args", &BTreeMap::from([("sort_index", position)]))?
                    }
                }
            }
        }
        event.end()
    }
}

fn nanos(micros: f64) -> i64 {
    (micros * 1e3).round() as i64
}

fn micros(nanos: i64) -> f64 {
    nanos as f64 / 1e3
}
