//! Lines of `side-by-side.jsonl`.

use serde::Deserialize;

/// Runs in PyTorch.
pub(super) const PEER: &str = "peer";
/// Samples of a step in the plain loop.
const BATCH: u64 = 64;

/// A run, or its failure.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Run {
    /// `baseline` for Burn, `peer` for PyTorch.
    #[serde(rename = "run")]
    pub program: String,
    pub model: String,
    /// Name of the run: `plain`, `planned` or a setting; `tf32`, `bf16` or `compiled` in PyTorch.
    pub way: String,
    /// Samples of a step.
    pub batch: u64,
    micro_batch: Option<u64>,
    precision: Option<String>,
    graphs: Option<Graphs>,
    /// Median of some windows.
    pub samples_per_second: Option<f64>,
    pub lowest: Option<f64>,
    pub highest: Option<f64>,
    pub first_step_seconds: Option<f64>,
    /// Mean of the last tenth of the steps.
    pub loss: Option<f64>,
    pub reserved_bytes: Option<u64>,
    pub device: Option<String>,
    pub torch: Option<String>,
    /// Message of a failure.
    pub message: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Graphs {
    status: String,
}

impl Run {
    /// Describes the settings of a run in Burn.
    pub(super) fn settings(&self) -> String {
        let micro_batch = self.micro_batch.unwrap_or(self.batch);
        let graphs = match self.graphs.as_ref().map(|graphs| graphs.status.as_str()) {
            Some("replaying") => ", CUDA graphs",
            Some("refused") => ", CUDA graphs refused",
            _ => "",
        };
        let precision = self.precision.as_deref().unwrap_or("f32");
        format!("{micro_batch} x {}, {precision}{graphs}", self.batch.div_ceil(micro_batch))
    }

    /// Returns true if the run differs from the plain loop by CUDA graphs only.
    fn changes_graphs_only(&self) -> bool {
        self.batch == BATCH && self.micro_batch == Some(BATCH) && self.precision.as_deref() == Some("f32")
    }
}

/// The successful runs of a model.
pub(super) struct Model<'r> {
    pub name: &'r str,
    runs: Vec<&'r Run>,
}

impl<'r> Model<'r> {
    /// The models of some runs, in their order.
    pub(super) fn all(runs: &'r [Run]) -> Vec<Self> {
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
    pub(super) fn baseline(&self, way: &str) -> Option<&'r Run> {
        let mut of_burn = self.runs.iter().copied().rev().filter(|run| run.program != PEER);
        let is_graphs = |run: &Run| run.way == "planned" && run.changes_graphs_only();
        of_burn.find(|run| run.way == way || (way == "graphs" && is_graphs(run)))
    }

    /// Samples per second of a run in Burn.
    pub(super) fn rate(&self, way: &str) -> Option<f64> {
        self.baseline(way)?.samples_per_second
    }

    /// Factor of a run's speed over the plain loop.
    pub(super) fn gain(&self, way: &str) -> Option<f64> {
        Some(self.rate(way)? / self.rate("plain")?)
    }

    /// Loss of planned settings relative to the plain loop, less one.
    pub(super) fn loss_difference(&self) -> Option<f64> {
        Some(self.baseline("planned")?.loss? / self.baseline("plain")?.loss? - 1.0)
    }

    /// Samples per second in PyTorch with the plain loop's batch.
    pub(super) fn peer(&self, way: &str) -> Option<f64> {
        let mut runs = self.peers().rev();
        runs.find(|run| run.way == way && run.batch == BATCH)?.samples_per_second
    }

    /// The fastest run in PyTorch with another batch.
    pub(super) fn best_peer(&self) -> Option<&'r Run> {
        fastest(self.peers().filter(|run| run.batch != BATCH))
    }

    /// Samples per second of the fastest run in PyTorch with as many samples in a step as planned.
    pub(super) fn fastest_peer(&self) -> Option<f64> {
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
