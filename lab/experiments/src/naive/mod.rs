//! Checks the promise of tuning guides: three to five times the speed of a naive configuration, and a busy GPU.
//!
//! The same model learns from the same samples in Burn's own loop, as in guides, and with this library's plan, loader
//! and trainer. Each model is trained by one process in fp32, and by another in 16 bits. A failure or a timeout of
//! one process does not affect the others.

mod child;
mod noise;
mod part;
mod patches;
mod plan;
mod run_stats;
mod series;
mod task;
mod utilisation;
mod verdict;
mod ways;

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use gpu_tuned::Precision;
use hardware_tests::line::say;
use serde::Serialize;
use serde_json::Value;

/// Time reserved for a model that has not begun, in seconds; autotune runs in it.
const KEPT: f64 = 40.0;

/// Options of `naive`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The models
    #[arg(long = "model", value_delimiter = ',', default_values = ["cnn", "lstm"])]
    models: Vec<Model>,
    /// Train much smaller models of the same kinds
    #[arg(long)]
    small: bool,
    /// Seconds that each way is timed for
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Seconds after which everything ends, tuning of kernels included
    #[arg(long, default_value_t = 150.0)]
    budget: f64,
    /// The precision of 16 bits
    #[arg(long, default_value = "mixed_bf16")]
    precision: Precision,
    /// Index of the GPU in CUDA's order
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Run one part of one model in this process
    #[arg(long, hide = true)]
    part: Option<Part>,
    /// Seconds after which a part begins nothing that can be left out
    #[arg(long, hide = true)]
    allotted: Option<f64>,
    /// Planned settings of a part, as JSON
    #[arg(long, hide = true)]
    settings: Option<String>,
}

/// The trained model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Model {
    /// Two layers of width 128 over windows of 30 days
    Lstm,
    /// Four residual blocks of 32 channels over patches of 64 x 64
    Cnn,
}

/// The part of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// All that is in f32
    F32,
    /// The planned way in 16 bits
    Half,
}

/// Prints a line for every method of every model, and a summary line for each model.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(part) = arguments.part {
        return arguments.models.iter().try_for_each(|model| part::run(arguments, *model, part));
    }
    let end = Instant::now() + Duration::from_secs_f64(arguments.budget.clamp(0.0, 1e6));
    let mut lines: Vec<Value> = Vec::new();
    for (place, model) in arguments.models.iter().enumerate() {
        let later = (arguments.models.len() - place - 1) as f64;
        let left = end.saturating_duration_since(Instant::now()).as_secs_f64();
        let most = (left - later * KEPT).max(left / (later + 1.0));
        // Optional measurements are skipped, to leave time for 16 bits.
        let allotted = (most - KEPT).max(0.5 * most);
        lines.extend(child::run(arguments, *model, Part::F32, most, allotted)?);
    }
    for (place, model) in arguments.models.iter().enumerate() {
        let later = (arguments.models.len() - place - 1) as f64;
        let left = end.saturating_duration_since(Instant::now()).as_secs_f64();
        let planned = verdict::found(&lines, *model, "plan").map(|plan| plan["half"].to_string());
        let arguments = Arguments { settings: planned, ..arguments.clone() };
        lines.extend(child::run(&arguments, *model, Part::Half, left / (0.75 * later + 1.0), left)?);
    }
    arguments.models.iter().try_for_each(|model| say("verdict", &verdict::Verdict::new(*model, &lines)))
}
