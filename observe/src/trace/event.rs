//! Trace events, as the published format has them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use serde::ser::{SerializeStruct, Serializer};
use serde::{Serialize, ser::SerializeMap};

/// Processes and threads as they are shown, with what happened when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    events: Vec<Event>,
    /// Names of tracks, to their numbers.
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
    what: What,
    process: u32,
    thread: u32,
    /// In nanoseconds, so that what ends where another begins does so in the file.
    at: i64,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    /// Something that took so many nanoseconds.
    Complete { length: i64, figures: Vec<(&'static str, f64)> },
    /// Figures from now on.
    Counter { figures: Vec<(&'static str, f64)> },
    /// The name of a process or a thread, or its place among the others.
    Metadata(Meta),
}

#[derive(Clone, Debug, PartialEq)]
enum Meta {
    Name(String),
    Place(u32),
}

impl Trace {
    /// Names a process.
    pub fn name_process(&mut self, process: u32, name: &str) {
        self.metadata("process_name", process, 0, Meta::Name(name.to_owned()));
    }

    /// The row of a process that is called so; rows are shown in the order in which they are first asked for.
    pub fn track(&mut self, process: u32, name: &str) -> Track {
        if let Some(thread) = self.tracks.get(&(process, name.to_owned())) {
            return Track { process, thread: *thread };
        }
        let thread = self.tracks.len() as u32 + 1;
        self.tracks.insert((process, name.to_owned()), thread);
        self.metadata("thread_name", process, thread, Meta::Name(name.to_owned()));
        self.metadata("thread_sort_index", process, thread, Meta::Place(thread));
        Track { process, thread }
    }

    /// Something that began `at` and took `length`, both in microseconds. In a row, what begins within another has to
    /// end within it.
    pub fn complete(&mut self, track: Track, name: &str, at: f64, length: f64, figures: &[(&'static str, f64)]) {
        let (begin, end) = (nanos(at), nanos(at + length.max(0.0)));
        let (at, what) = (begin, What::Complete { length: end.saturating_sub(begin), figures: finite(figures) });
        self.events.push(Event { name: name.to_owned(), what, process: track.process, thread: track.thread, at });
    }

    /// Figures of a process that count from the moment `at`, in microseconds, on.
    pub fn counter(&mut self, process: u32, name: &str, at: f64, figures: &[(&'static str, f64)]) {
        let (at, figures) = (nanos(at), finite(figures));
        if !figures.is_empty() {
            self.events.push(Event { name: name.to_owned(), what: What::Counter { figures }, process, thread: 0, at });
        }
    }

    fn metadata(&mut self, name: &str, process: u32, thread: u32, meta: Meta) {
        self.events.push(Event { name: name.to_owned(), what: What::Metadata(meta), process, thread, at: i64::MIN });
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    ///
    /// Where that cannot be written.
    pub fn write(&self, into: impl Write) -> io::Result<()> {
        serde_json::to_writer(into, self).map_err(io::Error::from)
    }

    /// Writes it to a file, completely or not at all.
    ///
    /// # Errors
    ///
    /// Where that cannot be written; a file that is there stays then as it was.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        // As any file that is made: the user's mask says who reads it.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.tempfile_in(folder)?;
        let mut gathered = io::BufWriter::new(file.as_file_mut());
        self.write(&mut gathered)?;
        gathered.flush()?;
        drop(gathered);
        file.persist(path).map(drop).map_err(|error| error.error)
    }
}

/// JSON has no others.
fn finite(figures: &[(&'static str, f64)]) -> Vec<(&'static str, f64)> {
    figures.iter().copied().filter(|(_, value)| value.is_finite()).collect()
}

/// The format's JSON object.
impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut events: Vec<&Event> = self.events.iter().collect();
        // What is within another comes after it, where both begin at once.
        events.sort_by_key(|event| (event.at, Reverse(event.length())));
        let mut object = serializer.serialize_struct("Trace", 2)?;
        object.serialize_field("displayTimeUnit", "ms")?;
        object.serialize_field("traceEvents", &events)?;
        object.end()
    }
}

impl Event {
    const fn length(&self) -> i64 {
        match self.what {
            What::Complete { length, .. } => length,
            What::Counter { .. } | What::Metadata(_) => 0,
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
        match &self.what {
            What::Complete { length, figures } => {
                event.serialize_entry("ph", "X")?;
                event.serialize_entry("ts", &micros(self.at))?;
                event.serialize_entry("dur", &micros(*length))?;
                if !figures.is_empty() {
                    event.serialize_entry("args", &Figures(figures))?;
                }
            }
            What::Counter { figures } => {
                event.serialize_entry("ph", "C")?;
                event.serialize_entry("ts", &micros(self.at))?;
                event.serialize_entry("args", &Figures(figures))?;
            }
            What::Metadata(meta) => {
                event.serialize_entry("ph", "M")?;
                match meta {
                    Meta::Name(name) => event.serialize_entry("args", &BTreeMap::from([("name", name)]))?,
                    Meta::Place(place) => event.serialize_entry("args", &BTreeMap::from([("sort_index", place)]))?,
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
