//! Raw results of the hardware tests, with their locks.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::source::Source;
use gpu_tuned_core::{Bytes, Precision};
use gpu_tuned_project::lock::Lock;
use serde::Deserialize;

use crate::results::{folders_with, lines};

/// All results, each model on one device.
#[derive(Default)]
pub(super) struct Results {
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
pub(super) struct Line {
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
    pub(super) fn read(all: &Path) -> Result<Option<Self>> {
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
    pub(super) fn traced(&self) -> impl Iterator<Item = &Line> {
        self.trace.iter().filter(|line| line.was_executed().is_some())
    }
}

impl Line {
    pub(super) const fn mode(&self) -> Mode {
        let precision = match self.precision {
            Format::F32 => Precision::F32,
            Format::Bf16 => Precision::Bf16Params,
        };
        Mode::new(precision, self.checkpointing)
    }

    /// Returns true if kernels ran, false for dry steps. `None` for lines of other tests.
    pub(super) fn was_executed(&self) -> Option<bool> {
        match self.test.as_str() {
            "trace" | "confirmed" => Some(true),
            "dry_trace" => Some(false),
            _ => None,
        }
    }

    /// Maximum bytes reserved by the memory pools after any step, without pages of another thread that opened the device.
    pub(super) fn reserved(&self) -> Option<Bytes> {
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
pub(super) fn parsed(text: &str) -> Result<Lock> {
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
