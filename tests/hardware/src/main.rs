//! Measures training steps on the GPU of this machine, or on the CPU in a build without CUDA.

mod baseline;
mod batch;
#[cfg(feature = "cuda")]
mod card;
mod catching;
mod described;
mod device;
mod drill;
mod encoder;
mod exact;
mod feed;
mod graphs;
mod head;
#[cfg(feature = "cuda")]
mod hold;
mod learn;
mod lesson;
mod line;
#[cfg(feature = "cuda")]
mod memory;
mod mode;
mod naive;
mod network;
mod observe;
mod overhead;
mod planned;
mod ranks;
mod steps;
mod sweep;
#[cfg(feature = "cuda")]
mod trace;
mod training;
mod unready;
mod warm;
mod weights;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};

/// Measures training steps and prints lines of JSON
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Reserved memory of the pools after each of many steps
    #[cfg(feature = "cuda")]
    Trace(trace::Arguments),
    /// Allocate all of a GPU's memory but a part until ended, to simulate a smaller GPU
    #[cfg(feature = "cuda")]
    Hold(hold::Arguments),
    /// Measures a model for the lock that `GPU_TUNED_LOCK` names, with `GPU_TUNED_MEASURE=1`, as `cargo gpu-tuned measure` does
    Measure(Measure),
    /// Time of optimizer steps of one global batch, in many splits into micro-batches
    Sweep(sweep::Arguments),
    /// Results of training in a precision, from the same weights and over the same batches
    Learn(learn::Arguments),
    /// Speed and loss of a plain Burn loop, or of this library with given settings
    Baseline(baseline::Arguments),
    /// Overhead of the trainer over a plain loop, in time and memory
    Overhead(overhead::Arguments),
    /// Checks of metrics: memory and utilisation of the GPU, and gradients
    Observe(observe::Arguments),
    /// Gradients of one split step, compared with fp64
    Exact(exact::Arguments),
    /// Gradients of a step with every kind of loss, in every precision and split, compared with fp64
    Steps(steps::Arguments),
    /// Provoke out-of-memory errors in training, and recover
    Drill(drill::Arguments),
    /// Micro-steps replayed as CUDA graphs: time, memory and losses, beside plain ones
    Graphs(graphs::Arguments),
    /// Head and loss of a language model, at once and in chunks: time and memory
    Head(head::Arguments),
    /// Utilisation with loaders, and their memory on the device
    Feed(feed::Arguments),
    /// Speed-up over a naive configuration, as tuning guides promise: an LSTM and a CNN in both ways
    Naive(naive::Arguments),
    /// Steps as one of the processes of a launcher, or alone: speed, losses, memory, and faults of one
    Ranks(ranks::Arguments),
    /// Train a model that is not ready for 16 bits where the planner chooses them: the program starts again in f32
    Unready(unready::Arguments),
    /// Time of the first optimizer steps of a session, or an archive of kernels for them if `GPU_TUNED_WARM` requests
    /// one
    Warm(warm::Arguments),
}

#[derive(Args)]
struct Measure {
    /// The model
    #[arg(long)]
    model: network::Model,
    /// Format of parameters and activations
    #[arg(long, default_value = "f32")]
    precision: mode::Precision,
}

impl Measure {
    fn run(&self) -> anyhow::Result<()> {
        let name = serde_json::to_value(self.model)?;
        self.model.measure_if_asked(name.as_str().context("BUG: a model is written as its name")?, self.precision)?;
        bail!(
            "nothing is measured without GPU_TUNED_MEASURE=1 in the environment, and the lock's path as GPU_TUNED_LOCK"
        )
    }
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        #[cfg(feature = "cuda")]
        Command::Trace(arguments) => trace::run(&arguments),
        #[cfg(feature = "cuda")]
        Command::Hold(arguments) => hold::run(&arguments),
        Command::Measure(arguments) => arguments.run(),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Learn(arguments) => learn::run(&arguments),
        Command::Baseline(arguments) => baseline::run(&arguments),
        Command::Overhead(arguments) => overhead::run(&arguments),
        Command::Observe(arguments) => observe::run(&arguments),
        Command::Exact(arguments) => exact::run(&arguments),
        Command::Steps(arguments) => steps::run(&arguments),
        Command::Drill(arguments) => drill::run(&arguments),
        Command::Graphs(arguments) => graphs::run(&arguments),
        Command::Head(arguments) => head::run(&arguments),
        Command::Feed(arguments) => feed::run(&arguments),
        Command::Naive(arguments) => naive::run(&arguments),
        Command::Ranks(arguments) => ranks::run(&arguments),
        Command::Unready(arguments) => unready::run(&arguments),
        Command::Warm(arguments) => warm::run(&arguments),
    }
}
