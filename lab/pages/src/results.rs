//! Raw results of the hardware tests: a folder for each device, with a lock and files of JSON lines.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, ensure};
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::source::Source;
use gpu_tuned_core::{Bytes, Precision};
use gpu_tuned_project::lock::Lock;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::figures::{max, median, min};

/// Folder of the results of tests.
pub const FOLDER: &str = "tests/hardware/results";

/// Folders in `results` that have `file`, sorted.
pub fn folders_with(results: &Path, file: &str) -> Result<Vec<PathBuf>> {
    let read = || -> std::io::Result<Vec<_>> { fs::read_dir(results)?.map(|entry| Ok(entry?.path())).collect() };
    let mut folders = read().with_context(|| format!("cannot read {}", results.display()))?;
    folders.retain(|folder| folder.join(file).is_file());
    folders.sort();
    Ok(folders)
}

/// Parses lines of JSON.
pub fn lines<T: DeserializeOwned>(file: &str, text: &str) -> Result<Vec<T>> {
    let numbered = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    numbered.map(|(index, line)| serde_json::from_str(line).with_context(|| format!("{file}:{}", index + 1))).collect()
}

/// All results, each model on one device.
#[derive(Default)]
pub struct Results {
    pub lock: Lock,
    /// The profile of each model's device.
    pub devices: BTreeMap<String, String>,
    /// Throughput of steps.
    pub sweep: Vec<Line>,
    /// Memory reserved by steps.
    pub trace: Vec<Line>,
    /// Memory of the same steps, executed and dry. Some pairs ran on another GPU than the lock's, with other kernels.
    pub pairs: Vec<Line>,
    /// Outcomes of steps by free memory.
    pub boundary: Vec<Line>,
    /// Planned settings, run beside a process that occupied the other memory.
    pub confirmed: Vec<Line>,
}

/// Result of one batch in one run.
#[derive(Clone, Debug, Deserialize)]
pub struct Line {
    pub model: String,
    precision: Format,
    checkpointing: bool,
    #[serde(default = "one")]
    pub accumulate: u64,
    /// Prefetched batches on the device.
    #[serde(default)]
    pub queue: u64,
    /// Samples in a micro-batch.
    pub batch: u64,
    /// Test that wrote the line: `sweep`, `trace`, `dry_trace`, `boundary` or `confirmed`.
    #[serde(rename = "way")]
    pub test: String,
    pub samples_per_second: Option<f64>,
    reserved_bytes: Option<Reserved>,
    /// Memory pools of every thread, first those of the thread that opened the device.
    #[serde(default)]
    pools: Vec<Pool>,
    pub free_mib: Option<u64>,
    pub ok: Option<bool>,
    #[serde(default)]
    pub out_of_memory: bool,
}

/// Precision as named in the results.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    F32,
    Bf16,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Reserved {
    AtTheEnd(u64),
    AfterEachStep(Vec<u64>),
}

/// Memory pool with pages of one size, after the last step.
#[derive(Clone, Debug, Deserialize)]
struct Pool {
    page_size: u64,
    pages: u64,
    /// Largest allocation, in bytes.
    largest_alloc: u64,
}

/// Bytes that opening a device allocates.
const OPENING: u64 = 512;

const fn one() -> u64 {
    1
}

impl Results {
    /// Reads a folder with a subfolder for each device, named by its profile. `None` if the folder is missing.
    pub fn read(all: &Path) -> Result<Option<Self>> {
        if !all.is_dir() {
            return Ok(None);
        }
        let mut results = Self::default();
        for folder in folders_with(all, Lock::NAME)? {
            results.add(&folder)?;
        }
        Ok(Some(results))
    }

    /// Adds the results in the folder of one device.
    fn add(&mut self, folder: &Path) -> Result<()> {
        let device = folder.file_name().unwrap_or_default().to_string_lossy();
        let path = folder.join(Lock::NAME);
        let lock = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for (model, entry) in parsed(&lock)?.workload {
            ensure!(
                entry.measured.on.contains_key(&*device),
                "{}: {model} is not measured on {device}, which the folder is named after",
                path.display()
            );
            let earlier = self.devices.insert(model.clone(), device.clone().into_owned());
            ensure!(
                earlier.is_none(),
                "{}: {model} is measured on {} already",
                path.display(),
                earlier.unwrap_or_default()
            );
            self.lock.workload.insert(model, entry);
        }
        let files = [
            (&mut self.sweep, "sweep.jsonl"),
            (&mut self.trace, "trace.jsonl"),
            (&mut self.pairs, "pairs.jsonl"),
            (&mut self.boundary, "boundary.jsonl"),
            (&mut self.confirmed, "confirmed.jsonl"),
        ];
        for (lines, file) in files {
            lines.extend(read(folder, file)?);
        }
        Ok(())
    }

    /// Lines of the trace about the memory of steps.
    pub fn traced(&self) -> impl Iterator<Item = &Line> {
        self.trace.iter().filter(|line| line.was_executed().is_some())
    }
}

impl Line {
    pub const fn mode(&self) -> Mode {
        let precision = match self.precision {
            Format::F32 => Precision::F32,
            Format::Bf16 => Precision::Bf16Params,
        };
        Mode::new(precision, self.checkpointing)
    }

    /// Returns true if kernels ran, false for dry steps. `None` for lines of other tests.
    pub fn was_executed(&self) -> Option<bool> {
        match self.test.as_str() {
            "trace" | "confirmed" => Some(true),
            "dry_trace" => Some(false),
            _ => None,
        }
    }

    /// Maximum bytes reserved by the memory pools after any step, without pages of another thread that opened the device.
    pub fn reserved(&self) -> Option<Bytes> {
        let max = match self.reserved_bytes.as_ref()? {
            Reserved::AtTheEnd(bytes) => *bytes,
            Reserved::AfterEachStep(steps) => *steps.iter().max()?,
        };
        Some(Bytes(max) - self.opening_pages())
    }

    /// Bytes of pages that only opening the device used.
    fn opening_pages(&self) -> Bytes {
        match self.pools.as_slice() {
            [first, _, ..] if first.largest_alloc == OPENING => Bytes(first.page_size * first.pages),
            _ => Bytes::ZERO,
        }
    }
}

/// Parses a lock.
pub fn parsed(text: &str) -> Result<Lock> {
    Lock::parse(Source { file: Lock::NAME, text }).map_err(|mistakes| {
        let mistakes: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        anyhow!("{}", mistakes.join("\n"))
    })
}

/// Reads a file of JSON lines; empty if the file is missing.
fn read(folder: &Path, file: &str) -> Result<Vec<Line>> {
    match fs::read_to_string(folder.join(file)) {
        Ok(text) => lines(file, &text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", folder.join(file).display())),
    }
}

/// Timed steps of one model, without accumulation.
#[derive(Default)]
pub struct Sweep(BTreeMap<Mode, BTreeMap<u64, Timed>>);

/// The repeats of one batch.
#[derive(Clone, Default)]
pub struct Timed {
    /// Samples per second of each successful repeat.
    rates: Vec<f64>,
    /// Repeats that ran out of memory.
    pub out_of_memory: usize,
    /// Repeats that failed otherwise.
    pub failed: usize,
}

/// Throughput of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub samples_per_s: f64,
    pub source: RateSource,
}

/// Source of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateSource {
    /// Median of the repeats at this batch.
    Sweep,
    /// Step time interpolated between two batches of the sweep.
    Interpolated,
    /// Step time extrapolated beyond the sweep.
    Extrapolated,
}

impl Sweep {
    /// Collects the sweep of one model.
    pub fn new(lines: &[Line], model: &str) -> Self {
        let mut sweep = Self::default();
        for line in lines.iter().filter(|line| line.model == model && line.test == "sweep") {
            let timed = sweep.0.entry(line.mode()).or_default().entry(line.batch).or_default();
            match line.samples_per_second {
                Some(rate) => timed.rates.push(rate),
                None if line.out_of_memory => timed.out_of_memory += 1,
                None => timed.failed += 1,
            }
        }
        sweep
    }

    pub fn modes(&self) -> impl Iterator<Item = (Mode, &BTreeMap<u64, Timed>)> {
        self.0.iter().map(|(mode, batches)| (*mode, batches))
    }

    /// Batches whose repeats all ran, ascending, with the median samples per second.
    pub fn medians(&self, mode: Mode) -> Vec<(u64, f64)> {
        let batches = self.0.get(&mode).into_iter().flatten();
        batches.filter_map(|(batch, timed)| Some((*batch, timed.median().filter(|_| timed.ran())?))).collect()
    }

    /// Returns true if a repeat of the batch ran out of memory.
    pub fn ran_out_of_memory(&self, mode: Mode, batch: u64) -> bool {
        self.0.get(&mode).and_then(|batches| batches.get(&batch)).is_some_and(|timed| timed.out_of_memory > 0)
    }

    /// Throughput at a batch: the median, or else from linearly interpolated step times. `None` if fewer than two batches were
    /// timed.
    pub fn rate(&self, mode: Mode, batch: u64) -> Option<Rate> {
        let medians = self.medians(mode);
        if let Some((_, samples_per_s)) = medians.iter().find(|(timed, _)| *timed == batch) {
            return Some(Rate { samples_per_s: *samples_per_s, source: RateSource::Sweep });
        }
        let after = medians.partition_point(|(timed, _)| *timed < batch);
        let low = after.max(1).min(medians.len().checked_sub(1)?) - 1;
        let [(below, slow), (above, fast)] = medians.get(low..low + 2)?.try_into().ok()?;
        let (here, below, above) = (batch as f64, below as f64, above as f64);
        let (from, to) = (below / slow, above / fast);
        let seconds = from + (to - from) * (here - below) / (above - below);
        let is_between = (below..=above).contains(&here);
        // A batch below the sweep has at most the throughput of the smallest batch.
        let seconds = if here < below { seconds.max(here / slow) } else { seconds };
        let source = if is_between { RateSource::Interpolated } else { RateSource::Extrapolated };
        (seconds > 0.0).then(|| Rate { samples_per_s: here / seconds, source })
    }
}

impl Timed {
    pub fn median(&self) -> Option<f64> {
        median(&self.rates)
    }

    /// The slowest and the fastest repeat.
    pub fn interval(&self) -> Option<(f64, f64)> {
        Some((min(&self.rates)?, max(&self.rates)?))
    }

    pub fn repeats(&self) -> usize {
        self.rates.len()
    }

    /// Returns true if every repeat ran.
    pub fn ran(&self) -> bool {
        !self.rates.is_empty() && self.out_of_memory == 0 && self.failed == 0
    }
}

impl Rate {
    /// Prefix of the figure in tables.
    pub const fn mark(self) -> &'static str {
        match self.source {
            RateSource::Sweep => "",
            RateSource::Interpolated => "~",
            RateSource::Extrapolated => "≈",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODE: Mode = Mode::new(Precision::F32, false);

    /// Steps of 10 ms and 1 ms for each sample, with a slow and a fast repeat; 64 does not always fit.
    fn sweep() -> Sweep {
        let mut text = String::new();
        for batch in [8, 32, 64] {
            for (repeat, factor) in [0.9, 1.0, 1.3].into_iter().enumerate() {
                let rate = factor * f64::from(batch) / (0.01 + 0.001 * f64::from(batch));
                let figure = match (batch, repeat) {
                    (64, 2) => r#""out_of_memory":true,"message":"out of device memory""#.to_owned(),
                    _ => format!(r#""samples_per_second":{rate}"#),
                };
                let line = format!(
                    "{{\"model\":\"lstm\",\"precision\":\"f32\",\"checkpointing\":false,\"accumulate\":1,\"batch\":{batch},\
                     \"way\":\"sweep\",\"repeat\":{repeat},{figure}}}\n"
                );
                text.push_str(&line);
            }
        }
        Sweep::new(&lines("sweep.jsonl", &text).expect("they are valid"), "lstm")
    }

    #[test]
    fn rates_are_medians_and_between_them_lines_of_seconds() {
        let sweep = sweep();
        let at =
            |batch: u64| sweep.rate(MODE, batch).map(|rate| (rate.source, (rate.samples_per_s * 10.0).round() / 10.0));
        assert_eq!(at(8), Some((RateSource::Sweep, 444.4)));
        assert_eq!(at(32), Some((RateSource::Sweep, 761.9)));
        assert_eq!(at(16), Some((RateSource::Interpolated, 615.4)));
        assert_eq!(at(48), Some((RateSource::Extrapolated, 827.6)));
        // Extrapolation gives 230.8 at 3 samples. That is less than the rate at 8, and is not capped.
        assert_eq!(at(3), Some((RateSource::Extrapolated, 230.8)));
        assert_eq!(sweep.rate(Mode { checkpointing: true, ..MODE }, 8), None);
    }

    #[test]
    fn a_batch_that_did_not_always_fit_is_ignored() {
        let sweep = sweep();
        assert_eq!(sweep.medians(MODE).iter().map(|(batch, _)| *batch).collect::<Vec<_>>(), [8, 32]);
        let (_, batches) = sweep.modes().next().expect("a mode");
        assert_eq!((batches[&64].out_of_memory, batches[&64].repeats(), batches[&8].repeats()), (1, 2, 3));
    }
}
