//! `docs/speed.md`: a plain Burn loop, this library and PyTorch on the same GPU.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use gpu_tuned_core::{Bytes, three_digits};
use gpu_tuned_observe::plot::{BarGroup, BarPlot, PlotSize};
use serde::Deserialize;

use crate::figures::{folded, geometric_mean, mib, or_dash};
use crate::generated::{cells, filled, table};
use crate::results::{folders_with, lines};

/// Text of the page, with a name in braces for each generated part.
const PAGE: &str = include_str!("speed.md");

/// Results of experiments, in a folder for each device.
const FOLDER: &str = "lab/experiments/results";
/// The file of raw lines in the folder of a device.
const FILE: &str = "side-by-side.jsonl";

/// Runs of the README's picture.
const README: &str = "lab/experiments/results/h200/side-by-side.jsonl";

/// Runs in PyTorch.
const PEER: &str = "peer";
/// Runs of the plain loop.
const PLAIN: &str = "plain";
/// Runs with the library and CUDA graphs, by precision.
const PLANNED: [&str; 2] = ["f32", "bf16"];
/// Samples of a step in Burn.
const BATCH: u64 = 64;

/// A run, or its failure.
#[derive(Clone, Debug, Deserialize)]
struct Run {
    /// `baseline` for Burn, `peer` for PyTorch.
    #[serde(rename = "run")]
    program: String,
    model: String,
    /// Name of the run: `plain`, `library`, `f32` or `bf16`, with `-1` and so on for other seeds; `tf32`, `bf16` or `compiled` in
    /// PyTorch.
    way: String,
    /// Samples of a step.
    batch: u64,
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

impl Run {
    fn is_peer(&self) -> bool {
        self.program == PEER
    }

    /// The name without a seed, and the seed behind it, such as `1` of `plain-1`.
    fn way_and_seed(&self) -> (&str, Option<&str>) {
        self.way.split_once('-').map_or((&self.way, None), |(way, seed)| (way, Some(seed)))
    }

    /// Samples per second; zero for a failure.
    fn rate(&self) -> f64 {
        self.samples_per_second.unwrap_or_default()
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

    /// The latest run of a name in Burn.
    fn run(&self, way: &str) -> Option<&'r Run> {
        self.runs.iter().copied().rev().find(|run| !run.is_peer() && run.way == way)
    }

    /// The faster one of the runs with the library and CUDA graphs.
    fn planned(&self) -> Option<&'r Run> {
        fastest(PLANNED.into_iter().filter_map(|way| self.run(way)))
    }

    /// Factor of the planned run over the plain loop.
    fn gain(&self) -> Option<f64> {
        Some(self.planned()?.rate() / self.run(PLAIN)?.rate())
    }

    /// Part of PyTorch's fastest run with as many samples in a step.
    fn part_of_peer(&self) -> Option<f64> {
        Some(self.planned()?.rate() / self.fastest_peer()?.rate())
    }

    /// PyTorch's fastest run with as many samples in a step.
    fn fastest_peer(&self) -> Option<&'r Run> {
        fastest(self.peers().filter(|run| run.batch == BATCH))
    }

    /// Losses of a run in Burn with each seed, the latest of a seed, and the lowest first.
    fn losses(&self, way: &str) -> Vec<f64> {
        let runs = self.runs.iter().filter(|run| !run.is_peer() && run.way_and_seed().0 == way);
        let by_seed: BTreeMap<&str, f64> =
            runs.filter_map(|run| Some((run.way_and_seed().1.unwrap_or("0"), run.loss?))).collect();
        let mut losses: Vec<_> = by_seed.into_values().collect();
        losses.sort_by(f64::total_cmp);
        losses
    }

    /// Samples per second in PyTorch with the plain loop's batch, in the fastest run.
    fn peer(&self, way: &str) -> Option<f64> {
        fastest(self.peers().filter(|run| run.way == way && run.batch == BATCH))?.samples_per_second
    }

    fn peers(&self) -> impl Iterator<Item = &'r Run> {
        self.runs.iter().copied().filter(|run| run.is_peer())
    }
}

fn fastest<'r>(runs: impl Iterator<Item = &'r Run>) -> Option<&'r Run> {
    runs.max_by(|a, b| a.rate().total_cmp(&b.rate()))
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

/// Geometric means of the models' gains over the plain loop, and of their parts of PyTorch's speed.
fn means(models: &[Model]) -> [Option<f64>; 2] {
    let mean = |figures: Vec<f64>| geometric_mean(&figures);
    [
        mean(models.iter().filter_map(Model::gain).collect()),
        mean(models.iter().filter_map(Model::part_of_peer).collect()),
    ]
}

/// Formats the runs of a device.
fn section(runs: &[Run]) -> String {
    let models = Model::all(runs);
    let [gain, part] = means(&models);
    let title = runs.iter().find_map(|run| Some((run.device.as_ref()?, run.torch.as_ref()?)));
    let title = title.map_or_else(|| "## GPU".to_owned(), |(gpu, torch)| format!("## {gpu}, PyTorch {torch}"));
    let gain = or_dash(gain, |mean| format!("x{mean:.2}"));
    let part = or_dash(part, |mean| format!("{mean:.2}"));
    format!(
        "{title}\n\n### Samples per second\n\nOver {} models, the geometric means are {gain} over the plain loop, and {part} of \
         PyTorch. *Gain* and *of PyTorch* are those of the faster precision with CUDA graphs; PyTorch's is its fastest run of any \
         session.\n\n{}\n### Losses\n\n*Loss* is the mean over the last tenth of the steps, after the same number of samples: a \
         range over *seeds* of the weights and of the order of samples. `experiments band` compares runs with the same \
         seed.\n\n{}\n### \
         PyTorch\n\n{}\n{}",
        models.len(),
        speeds(&models),
        losses(&models),
        peers(&models),
        folded("All runs", &every_run(runs)),
    )
}

/// Draws the speeds of a device's models for the README: the plain loop, the library and PyTorch.
pub fn picture(root: &Path) -> Result<String> {
    let path = root.join(README);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let runs: Vec<Run> = lines(README, &text)?;
    let group = |model: &Model| {
        let runs = [model.run(PLAIN), model.planned(), model.fastest_peer()];
        let [plain, planned, peer] = runs.map(|run| run.map_or(0.0, Run::rate));
        let bar = |rate: f64| (rate / peer, three_digits(rate));
        BarGroup { name: model.name.to_owned(), bars: [plain, planned, peer].map(bar).to_vec() }
    };
    let device = runs.iter().find_map(|run| run.device.as_deref()).unwrap_or("GPU");
    let plot = BarPlot {
        size: PlotSize::Narrow,
        title: format!("Samples per second on {device}"),
        note: "steps of 64 samples; as parts of PyTorch's fastest run".to_owned(),
        names: ["Burn, plain loop in f32", "gpu-tuned: library, CUDA graphs, the faster precision", "PyTorch"]
            .map(str::to_owned)
            .to_vec(),
        groups: Model::all(&runs).iter().map(group).collect(),
    };
    Ok(plot.svg())
}

fn speeds(models: &[Model]) -> String {
    let row = |model: &Model| {
        let rate = |way| or_dash(model.run(way).map(Run::rate), three_digits);
        cells![
            model.name,
            rate(PLAIN),
            rate("library"),
            rate("f32"),
            rate("bf16"),
            or_dash(model.gain(), |factor| format!("x{factor:.2}")),
            or_dash(model.part_of_peer(), |part| format!("{part:.2}")),
        ]
    };
    let headings = [
        "model",
        "plain loop",
        "library",
        "library, CUDA graphs",
        "library, CUDA graphs, mixed bf16",
        "gain",
        "of PyTorch",
    ];
    table(headings, models.iter().map(row))
}

fn losses(models: &[Model]) -> String {
    let row = |model: &Model| {
        let loss = |way| match model.losses(way)[..] {
            [] => "-".to_owned(),
            [loss] => format!("{loss:.4}"),
            [least, .., most] => format!("{least:.4} to {most:.4}"),
        };
        let reserved = |way| or_dash(model.run(way).and_then(|run| run.reserved_bytes), |bytes| mib(Bytes(bytes)));
        let seeds = [PLAIN, PLANNED[0], PLANNED[1]].map(|way| model.losses(way).len().to_string());
        cells![
            model.name,
            loss(PLAIN),
            loss("f32"),
            loss("bf16"),
            seeds.join(", "),
            reserved(PLAIN),
            reserved("f32"),
            reserved("bf16"),
        ]
    };
    let headings =
        ["model", "loss, plain", "loss, f32", "loss, mixed bf16", "seeds", "MiB, plain", "MiB, f32", "MiB, mixed bf16"];
    table(headings, models.iter().map(row))
}

fn peers(models: &[Model]) -> String {
    let row = |model: &Model| {
        let rate = |way| or_dash(model.peer(way), three_digits);
        let plain = model.run(PLAIN).map(Run::rate).zip(model.peer("tf32"));
        let plain = or_dash(plain, |(plain, peer)| format!("{:.2}", plain / peer));
        cells![model.name, rate("tf32"), rate("bf16"), rate("compiled"), plain]
    };
    table(["model", "TF32", "bf16", "compiled", "plain loop / TF32"], models.iter().map(row))
}

fn every_run(runs: &[Run]) -> String {
    let row = |run: &Run| {
        let rate = |rate| or_dash(rate, three_digits);
        let range = format!("{} to {}", rate(run.lowest), rate(run.highest));
        let median = run.message.clone().unwrap_or_else(|| rate(run.samples_per_second));
        cells![
            run.model,
            if run.is_peer() { "PyTorch" } else { "Burn" },
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
    // Runs of other seeds are for their losses, and may share the GPU.
    table(headings, runs.iter().filter(|run| run.way_and_seed().1.is_none()).map(row))
}
