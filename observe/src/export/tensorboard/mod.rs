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

mod event;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::metrics::{HOST_FIGURES, NamedFigure, gpu_figures, step_figures};
use crate::recording::{Observer, Record, now};
use event::{Event, Scalar, Summary};

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
                let speed = ("samples_per_s", Some(step.samples as f64 / step.seconds));
                let all = step_figures(step).chain([speed]);
                self.scalars(step.step, step.at, scalars(all, |name| format!("{rank}{}/{name}", group(name))))
            }
            Record::Value(value) => {
                let step = value.step.unwrap_or(self.step);
                self.scalars(step, value.at, vec![scalar(value.name.clone(), value.value)])
            }
            Record::Gpu(sample) => {
                let slot = sample.mig_slot.map(|slot| format!(".{slot}")).unwrap_or_default();
                let figures = gpu_figures().map(|figure| (figure.key, (figure.of)(sample)));
                self.sample(format!("gpu{}{slot}", sample.gpu), sample.at, figures)
            }
            Record::Host(sample) => {
                let figures = HOST_FIGURES.iter().map(|figure| (figure.key, (figure.of)(sample)));
                self.sample("host".to_owned(), sample.at, figures)
            }
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

    fn sample(&mut self, device: String, at: f64, figures: impl Iterator<Item = NamedFigure>) -> io::Result<()> {
        let scalars = scalars(figures, |name| format!("{device}/{name}"));
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

fn scalars(figures: impl Iterator<Item = NamedFigure>, name: impl Fn(&str) -> String) -> Vec<Scalar> {
    figures.filter_map(|(figure, value)| Some(scalar(name(figure), value?))).collect()
}

/// Returns the group of a step's figure.
fn group(name: &str) -> &'static str {
    match name {
        "loss" | "gradient_norm" | "loss_scale" | "applied" | "rescues" | "samples" | "micro_batches"
        | "micro_batch" => "train",
        "queued" | "prepared" | "prepared_s" | "prepared_cpu_s" | "waited_s" => "loader",
        "in_use_bytes" | "reserved_bytes" => "memory",
        _ => "time",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::recording::{GpuSample, Record, StepRecord, Value};
    use prost::Message;

    use super::EventWriter;
    use super::event::Event;
    use crate::recording::Observer;

    /// Reads the events of a file by their lengths.
    fn events(bytes: &[u8]) -> Vec<Event> {
        let (mut events, mut rest) = (Vec::new(), bytes);
        while let Some((length, tail)) = rest.split_first_chunk::<8>() {
            let length = usize::try_from(u64::from_le_bytes(*length)).unwrap();
            events.push(Event::decode(&tail[4..4 + length]).unwrap());
            rest = &tail[8 + length..];
        }
        events
    }

    #[test]
    fn records_are_exported_by_step_and_by_sample() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(folder.path().join("runs/one")).unwrap();
        let mut step = StepRecord::new(10.0, 7);
        (step.seconds, step.samples, step.loss, step.rank) = (0.5, 64, Some(0.0), 1);
        let mut gpu = GpuSample::new(11.0, 0);
        gpu.utilisation_percent = Some(98.0);
        let records = [Record::Gpu(gpu.clone()), Record::Gpu(gpu), Record::Value(Value::new(12.0, "valid/loss", 0.5))];
        writer.observe(&Record::Step(Box::new(step)));
        for record in &records {
            writer.observe(record);
        }
        Observer::flush(&mut writer);
        let events = events(&fs::read(writer.path()).unwrap());
        assert_eq!(events[0].file_version.as_deref(), Some("brain.Event:2"));
        let of_step = &events[1].summary.as_ref().unwrap().value;
        let value = |tag: &str| of_step.iter().find(|scalar| scalar.tag == tag).and_then(|scalar| scalar.simple_value);
        assert_eq!((value("rank1/train/loss"), value("rank1/time/samples_per_s")), (Some(0.0), Some(128.0)));
        assert_eq!(value("rank1/train/gradient_norm"), None);
        assert!(events[1..].iter().map(|event| event.step).eq([7, 1, 2, 7]));
    }

    #[test]
    fn every_writer_has_its_own_file() {
        let folder = tempfile::tempdir().unwrap();
        let writers = [(); 3].map(|()| EventWriter::create(folder.path()).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), writers.len());
    }
}
