//! The raw lines of the hardware tests, and the locks that were measured beside them.

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

/// Everything that was measured, each model on one device.
#[derive(Default)]
pub(super) struct Results {
    pub lock: Lock,
    /// The profile of each model's device.
    pub devices: BTreeMap<String, String>,
    /// How long steps take.
    pub sweep: Vec<Line>,
    /// What steps reserve.
    pub trace: Vec<Line>,
    /// The same, executed and dry, some of it on another GPU than the lock, with kernels of its own.
    pub pairs: Vec<Line>,
    /// With how little free memory steps still run.
    pub boundary: Vec<Line>,
    /// Planned settings beside a process that holds the rest of the memory.
    pub confirmed: Vec<Line>,
}

/// One batch in one run; the figures are those of its file.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Line {
    pub model: String,
    precision: Format,
    checkpointing: bool,
    #[serde(default = "one")]
    pub accumulate: u64,
    /// Batches that wait on the device beside the one in use.
    #[serde(default)]
    pub queue: u64,
    /// Samples in a micro-batch.
    pub batch: u64,
    pub way: String,
    pub samples_per_second: Option<f64>,
    reserved_bytes: Option<Reserved>,
    /// Those of the thread that opened the device come first.
    #[serde(default)]
    pools: Vec<Pool>,
    pub free_mib: Option<u64>,
    pub ok: Option<bool>,
    #[serde(default)]
    pub out_of_memory: bool,
}

/// A format of numbers as the hardware tests call it.
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

/// Pages of one size, after the last step.
#[derive(Clone, Debug, Deserialize)]
struct Pool {
    page_size: u64,
    pages: u64,
    /// The largest allocation that it has served, in bytes.
    largest_alloc: u64,
}

/// What opening a device allocates.
const OPENING: u64 = 512;

const fn one() -> u64 {
    1
}

impl Results {
    /// What lies below this folder, in one for each device, which its profile gives the name; `None` where there is none.
    pub(super) fn read(all: &Path) -> Result<Option<Self>> {
        if !all.is_dir() {
            return Ok(None);
        }
        let entries = fs::read_dir(all).with_context(|| format!("cannot read {}", all.display()))?;
        let folders: std::io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
        let mut folders = folders.with_context(|| format!("cannot read {}", all.display()))?;
        folders.retain(|folder| folder.join(Lock::NAME).is_file());
        folders.sort();
        let mut results = Self::default();
        for folder in &folders {
            results.add(folder)?;
        }
        Ok(Some(results))
    }

    /// What lies in the folder of one device.
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

    /// The lines of the trace that tell what steps hold.
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

    /// Whether the steps ran or their kernels were left out; `None` of a line that is about something else.
    pub(super) fn was_executed(&self) -> Option<bool> {
        match self.way.as_str() {
            "trace" | "confirmed" => Some(true),
            "dry_trace" => Some(false),
            _ => None,
        }
    }

    /// The most that the memory pools held after any step, without what another thread than theirs had left in opening the
    /// device.
    pub(super) fn reserved(&self) -> Option<Bytes> {
        let most = match self.reserved_bytes.as_ref()? {
            Reserved::AtTheEnd(bytes) => *bytes,
            Reserved::AfterEachStep(steps) => *steps.iter().max()?,
        };
        Some(Bytes(most) - self.left_in_opening())
    }

    /// The page that has what opening the device allocated, and nothing else.
    fn left_in_opening(&self) -> Bytes {
        match self.pools.as_slice() {
            [first, _, ..] if first.largest_alloc == OPENING => Bytes(first.page_size * first.pages),
            _ => Bytes::ZERO,
        }
    }
}

/// The lock with this text.
pub(super) fn parsed(text: &str) -> Result<Lock> {
    Lock::parse(Source { file: Lock::NAME, text }).map_err(|mistakes| {
        let mistakes: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        anyhow!("{}", mistakes.join("\n"))
    })
}

/// The lines of this text of JSON.
pub(super) fn lines(file: &str, text: &str) -> Result<Vec<Line>> {
    let numbered = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    numbered.map(|(index, line)| serde_json::from_str(line).with_context(|| format!("{file}:{}", index + 1))).collect()
}

/// The file's lines; none where it is missing.
fn read(folder: &Path, file: &str) -> Result<Vec<Line>> {
    match fs::read_to_string(folder.join(file)) {
        Ok(text) => lines(file, &text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", folder.join(file).display())),
    }
}
