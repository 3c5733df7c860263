//! TensorBoard's event files, of running programs and of recordings.
//!
//! ```
//! use gpu_tuned_observe::export::tensorboard::EventWriter;
//! use gpu_tuned_observe::recording::{Observer, Record, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let directory = folder.path();
//! // In a program: `Options::default().observe(EventWriter::create(directory)?)` exports every step.
//! let mut writer = EventWriter::create(directory)?;
//! writer.observe(&Record::Value(Value::new(1.0, "valid/loss", 0.25)));
//! writer.scalar("valid/accuracy", 1, 2.0, 0.9)?;
//! writer.flush()?;
//! # assert_eq!(std::fs::read_dir(directory)?.count(), 1);
//! # Ok(())
//! # }
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prost::Message;

use crate::metrics::{Figure, HOST_FIGURES, StepFigure, gpu_figures, step_figures};
use crate::recording::{Observer, Record, now};

/// Version of the format, in the first event of a file.
const VERSION: &str = "brain.Event:2";
/// Files of this process so far, for unique names.
static FILES: AtomicU64 = AtomicU64::new(0);

/// Writes scalars to a new event file in a directory.
///
/// | records | tags | step |
/// |---|---|---|
/// | steps | `train/…`, `time/…`, `loader/…`, `memory/…`; with the prefix `rank1/` for other ranks | optimizer step |
/// | GPUs, host | `gpu0/…`, `host/…` | the number of the sample |
/// | values of the program | their names | their own, or the last optimizer step |
#[derive(Debug)]
pub struct EventWriter {
    path: PathBuf,
    /// `None` after a write failed.
    file: Option<BufWriter<File>>,
    /// Number of the last optimizer step.
    step: u64,
    /// Samples of each device so far.
    samples: BTreeMap<String, u64>,
}

impl EventWriter {
    /// Creates a file in `directory`, which is created if needed.
    ///
    /// # Errors
    ///
    /// If the file cannot be created.
    pub fn create(directory: impl AsRef<Path>) -> io::Result<Self> {
        let directory = directory.as_ref();
        fs::create_dir_all(directory)?;
        let host = sysinfo::System::host_name().unwrap_or_else(|| "localhost".to_owned());
        let host: String = host.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let (at, number) = (now(), FILES.fetch_add(1, Relaxed));
        // TensorBoard finds files by `tfevents` in the name, and reads them in the order of their names.
        let name = format!("events.out.tfevents.{:010}.{host}.{}.{number}", at as u64, std::process::id());
        let path = directory.join(name);
        let file = File::options().write(true).create_new(true).open(&path)?;
        let mut writer = Self { path, file: Some(BufWriter::new(file)), step: 0, samples: BTreeMap::new() };
        writer.write(&Event { wall_time: at, step: 0, file_version: Some(VERSION.to_owned()), summary: None })?;
        Ok(writer)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a value of an optimizer step, at a moment in seconds since 1970.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn scalar(&mut self, tag: &str, step: u64, at: f64, value: f64) -> io::Result<()> {
        self.scalars(step, at, vec![scalar(tag.to_owned(), value)])
    }

    /// Writes the figures of a record.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Step(step) => {
                self.step = self.step.max(step.step);
                let rank = if step.rank == 0 { String::new() } else { format!("rank{}/", step.rank) };
                let speed = ("time", "samples_per_s", Some(step.samples as f64 / step.seconds));
                let tagged = |(group, key, value): StepFigure| Some(scalar(format!("{rank}{group}/{key}"), value?));
                self.scalars(step.step, step.at, step_figures(step).chain([speed]).filter_map(tagged).collect())
            }
            Record::Value(value) => {
                let step = value.step.unwrap_or(self.step);
                self.scalars(step, value.at, vec![scalar(value.name.clone(), value.value)])
            }
            Record::Gpu(sample) => {
                let slot = sample.mig_slot.map(|slot| format!(".{slot}")).unwrap_or_default();
                self.sample(format!("gpu{}{slot}", sample.gpu), sample.at, gpu_figures(), sample)
            }
            Record::Host(sample) => self.sample("host".to_owned(), sample.at, &HOST_FIGURES, sample),
            _ => Ok(()),
        }
    }

    /// Writes the buffer to the file.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }

    fn sample<S: 'static>(
        &mut self,
        device: String,
        at: f64,
        figures: impl IntoIterator<Item = &'static Figure<S>>,
        sample: &S,
    ) -> io::Result<()> {
        let tagged = |figure: &Figure<S>| Some(scalar(format!("{device}/{}", figure.key), (figure.of)(sample)?));
        let scalars = figures.into_iter().filter_map(tagged).collect();
        let samples = self.samples.entry(device).or_default();
        *samples += 1;
        let step = *samples;
        self.scalars(step, at, scalars)
    }

    fn scalars(&mut self, step: u64, at: f64, value: Vec<Scalar>) -> io::Result<()> {
        if value.is_empty() {
            return Ok(());
        }
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        self.write(&Event { wall_time: at, step, file_version: None, summary: Some(Summary { value }) })
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(&event.framed()))
    }

    /// Stops writing after an error.
    fn or_give_up(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            tracing::warn!(%error, "TensorBoard's event file ends here: `{}` cannot be written", self.path.display());
            self.file = None;
        }
    }
}

/// Exports every record. If the file cannot be written, the export ends with a warning.
impl Observer for EventWriter {
    fn observe(&mut self, record: &Record) {
        let written = self.record(record);
        self.or_give_up(written);
    }

    fn flush(&mut self) {
        let written = Self::flush(self);
        self.or_give_up(written);
    }
}

fn scalar(tag: String, value: f64) -> Scalar {
    Scalar { tag, simple_value: Some(value as f32) }
}

/// An event of a run.
#[derive(Clone, PartialEq, Message)]
struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    #[prost(int64, tag = "2")]
    pub step: i64,
    /// Version of the format, in the first event of a file.
    #[prost(string, optional, tag = "3")]
    pub file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub value: Vec<Scalar>,
}

#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    pub tag: String,
    /// Optional, so that zero is written too: the field is one of several kinds of values.
    #[prost(float, optional, tag = "2")]
    pub simple_value: Option<f32>,
}

impl Event {
    /// Frames the event for a file: its length, the length's checksum, the event, and its checksum.
    fn framed(&self) -> Vec<u8> {
        let event = self.encode_to_vec();
        let length = (event.len() as u64).to_le_bytes();
        let mut framed = Vec::with_capacity(event.len() + 16);
        framed.extend(length);
        framed.extend(masked_checksum(&length).to_le_bytes());
        framed.extend(&event);
        framed.extend(masked_checksum(&event).to_le_bytes());
        framed
    }
}

/// CRC-32C, rotated and shifted by a constant, as TFRecord requires.
fn masked_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}
