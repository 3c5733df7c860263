//! `docs/speed.md`: a plain Burn loop, this library and PyTorch on the same GPU.

#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use gpu_tuned_core::{Bytes, three_digits};
use serde::Deserialize;

use crate::figures::{difference, folded, geometric_mean, mib, or_dash};
use crate::generated::{cells, filled, table};
use crate::results::{folders_with, lines};

/// Text of the page, with a name in braces for each generated part.
const PAGE: &str = include_str!("speed.md");

/// Results of experiments, in a folder for each device.
const FOLDER: &str = "lab/experiments/results";
/// The file of raw lines in the folder of a device.
const FILE: &str = "side-by-side.jsonl";

/// Runs in PyTorch.
const PEER: &str = "peer";
/// Samples of a step in the plain loop.
const BATCH: u64 = 64;

/// A run, or its failure.
#[derive(Clone, Debug, Deserialize)]
struct Run {
    /// `baseline` for Burn, `peer` for PyTorch.
    #[serde(rename = "run")]
    program: String,
    model: String,
    /// Name of the run: `plain`, `planned` or a setting; `tf32`, `bf16` or `compiled` in PyTorch.
    way: String,
    /// Samples of a step.
    batch: u64,
    micro_batch: Option<u64>,
    precision: Option<String>,
    /// True with kernels of NVIDIA's libraries.
    #[serde(default)]
    library: bool,
    graphs: Option<Graphs>,
    /// Median of some windows.
    samples_per_second: Option<f64>,
    lowest: Option<f64>,
    highest: Option<f64>,
    first_step_seconds: Option<f64>,
    /// Mean of the last tenth of the steps.
    loss: Option<f64>,
    reserved_bytes: Option<u64>,
    device: Option<String>,
    torch: Option<String>,
    /// Message of a failure.
    message: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Graphs {
    status: String,
}

impl Run {
    /// Describes the settings of a run in Burn.
    fn settings(&self) -> String {
        let micro_batch = self.micro_batch.unwrap_or(self.batch);
        let graphs = match self.graphs.as_ref().map(|graphs| graphs.status.as_str()) {
            Some("replaying") => ", CUDA graphs",
            Some("refused") => ", CUDA graphs refused",
            _ => "",
        };
        let precision = self.precision.as_deref().unwrap_or("f32");
        let library = if self.library { ", library" } else { "" };
        format!("{micro_batch} x {}, {precision}{library}{graphs}", self.batch.div_ceil(micro_batch))
    }

    /// Returns true if the run differs from the plain loop by CUDA graphs only.
    fn changes_graphs_only(&self) -> bool {
        let is_f32 = self.precision.as_deref() == Some("f32");
        self.batch == BATCH && self.micro_batch == Some(BATCH) && is_f32 && !self.library
    }
}

/// The successful runs of a model.
struct Model<'r> {
    name: &'r str,
    runs: Vec<&'r Run>,
}

impl<'r> Model<'r> {
    /// The models of some runs, in their order.
    fn all(runs: &'r [Run]) -> Vec<Self> {
        let mut models: Vec<Self> = Vec::new();
        for run in runs.iter().filter(|run| run.samples_per_second.is_some()) {
            match models.iter_mut().find(|model| model.name == run.model) {
                Some(model) => model.runs.push(run),
                None => models.push(Self { name: &run.model, runs: vec![run] }),
            }
        }
        models
    }

    /// The latest run of a name in Burn. A plan that only replays CUDA graphs is the run for this setting, too.
    fn baseline(&self, way: &str) -> Option<&'r Run> {
        let mut of_burn = self.runs.iter().copied().rev().filter(|run| run.program != PEER);
        let is_graphs = |run: &Run| run.way == "planned" && run.changes_graphs_only();
        of_burn.find(|run| run.way == way || (way == "graphs" && is_graphs(run)))
    }

    /// Samples per second of a run in Burn.
    fn rate(&self, way: &str) -> Option<f64> {
        self.baseline(way)?.samples_per_second
    }

    /// Factor of a run's speed over the plain loop.
    fn gain(&self, way: &str) -> Option<f64> {
        Some(self.rate(way)? / self.rate("plain")?)
    }

    /// Loss of planned settings relative to the plain loop, less one.
    fn loss_difference(&self) -> Option<f64> {
        Some(self.baseline("planned")?.loss? / self.baseline("plain")?.loss? - 1.0)
    }

    /// Samples per second in PyTorch with the plain loop's batch.
    fn peer(&self, way: &str) -> Option<f64> {
        let mut runs = self.peers().rev();
        runs.find(|run| run.way == way && run.batch == BATCH)?.samples_per_second
    }

    /// The fastest run in PyTorch with another batch.
    fn best_peer(&self) -> Option<&'r Run> {
        fastest(self.peers().filter(|run| run.batch != BATCH))
    }

    /// Samples per second of the fastest run in PyTorch with as many samples in a step as planned.
    fn fastest_peer(&self) -> Option<f64> {
        let planned = self.baseline("planned")?.batch;
        fastest(self.peers().filter(|run| run.batch == planned))?.samples_per_second
    }

    fn peers(&self) -> impl DoubleEndedIterator<Item = &'r Run> {
        self.runs.iter().copied().filter(|run| run.program == PEER)
    }
}

fn fastest<'r>(runs: impl Iterator<Item = &'r Run>) -> Option<&'r Run> {
    let rate = |run: &Run| run.samples_per_second.unwrap_or_default();
    runs.max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

/// Generates the page, with a section for each device.
pub fn page(root: &Path) -> Result<String> {
    let mut sections = String::new();
    for folder in folders_with(&root.join(FOLDER), FILE)? {
        let path = folder.join(FILE);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        sections += &section(&lines(&path.to_string_lossy(), &text)?);
    }
    let devices = if sections.is_empty() { "Not measured yet.".to_owned() } else { sections };
    Ok(filled(PAGE, &[("devices", devices)]))
}

/// Formats the runs of a device.
fn section(runs: &[Run]) -> String {
    let models = Model::all(runs);
    let title = runs.iter().find_map(|run| Some((run.device.as_ref()?, run.torch.as_ref()?)));
    let title = title.map_or_else(|| "## GPU".to_owned(), |(gpu, torch)| format!("## {gpu}, PyTorch {torch}"));
    let gains: Vec<f64> = models.iter().filter_map(|model| model.gain("planned")).collect();
    let mean = or_dash(geometric_mean(&gains), |mean| format!("x{mean:.2}"));
    format!(
        "{title}\n\n### Planned settings\n\nThe geometric mean of the gains is {mean} over {} models. *Loss* is the mean over \
         the last tenth of the steps, after the same number of samples. *Settings* are micro-batch x \
         accumulation, precision, kernels of NVIDIA's libraries, and CUDA graphs. *Reserved* is the memory of the pools in MiB.\n\n{}\n\
         ### Each setting alone\n\nGains over the plain loop. A dash marks a setting that the plan leaves as it is.\n\n{}\n\
         ### PyTorch\n\nSamples/s with micro-batches of 64. *bf16* is autocast, *compiled* is bf16 with `torch.compile`. TF32 is \
         allowed, as in Burn. *Burn / PyTorch* compares the plain loop with TF32, and planned \
         settings with the fastest run of as many samples in a step.\n\n{}\n{}",
        gains.len(),
        planned(&models),
        alone(&models),
        peers(&models),
        folded("All runs", &every_run(runs)),
    )
}

fn planned(models: &[Model]) -> String {
    let headings = [
        "model",
        "plain, samples/s",
        "planned, samples/s",
        "gain",
        "settings",
        "loss, plain",
        "loss, planned",
        "reserved",
    ];
    let row = |model: &Model| {
        let [plain, planned] = ["plain", "planned"].map(|way| model.baseline(way));
        let rate = |run: Option<&Run>| or_dash(run.and_then(|run| run.samples_per_second), three_digits);
        let loss = |run: Option<&Run>| or_dash(run.and_then(|run| run.loss), |loss| format!("{loss:.4}"));
        let reserved = |run: Option<&Run>| or_dash(run.and_then(|run| run.reserved_bytes), |bytes| mib(Bytes(bytes)));
        let lower = model.loss_difference().map(|apart| format!(" ({})", difference(apart))).unwrap_or_default();
        cells![
            model.name,
            rate(plain),
            rate(planned),
            gain(model.gain("planned")),
            or_dash(planned, Run::settings),
            loss(plain),
            loss(planned) + &lower,
            format!("{} to {}", reserved(plain), reserved(planned)),
        ]
    };
    table(headings, models.iter().map(row))
}

fn alone(models: &[Model]) -> String {
    let row = |model: &Model| {
        let [batch, precision, library, graphs, all] =
            ["batch", "precision", "library", "graphs", "planned"].map(|way| gain(model.gain(way)));
        cells![model.name, batch, precision, library, graphs, all]
    };
    table(["model", "micro-batch", "precision", "library", "CUDA graphs", "all"], models.iter().map(row))
}

fn peers(models: &[Model]) -> String {
    let row = |model: &Model| {
        let peer = |way| model.peer(way);
        let fastest = model.fastest_peer();
        let over = |way, other: Option<f64>| {
            or_dash(model.rate(way).zip(other), |(burn, other)| format!("{:.2}", burn / other))
        };
        let rate = |way| or_dash(peer(way), three_digits);
        let best = or_dash(model.best_peer(), |best| {
            format!("{} at {}, {}", or_dash(best.samples_per_second, three_digits), best.batch, best.way)
        });
        cells![
            model.name,
            rate("tf32"),
            rate("bf16"),
            rate("compiled"),
            best,
            over("plain", peer("tf32")),
            over("planned", fastest)
        ]
    };
    let headings = [
        "model",
        "TF32",
        "bf16",
        "compiled",
        "best of other sizes",
        "Burn / PyTorch, plain",
        "Burn / PyTorch, planned",
    ];
    table(headings, models.iter().map(row))
}

fn every_run(runs: &[Run]) -> String {
    let row = |run: &Run| {
        let rate = |rate| or_dash(rate, three_digits);
        let range = format!("{} to {}", rate(run.lowest), rate(run.highest));
        let median = run.message.clone().unwrap_or_else(|| rate(run.samples_per_second));
        cells![
            run.model,
            if run.program == PEER { "PyTorch" } else { "Burn" },
            run.way,
            run.batch,
            median,
            range,
            or_dash(run.first_step_seconds, |seconds| format!("{seconds:.1}")),
            or_dash(run.reserved_bytes, |bytes| mib(Bytes(bytes)))
        ]
    };
    let headings =
        ["model", "", "run", "samples in a step", "samples/s, median", "min to max", "first step, s", "reserved, MiB"];
    table(headings, runs.iter().map(row))
}

fn gain(factor: Option<f64>) -> String {
    or_dash(factor, |factor| format!("x{factor:.2}"))
}
