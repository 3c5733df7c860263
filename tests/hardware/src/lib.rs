//! Measures training steps on the GPU of this machine, or on the CPU in a build without CUDA.
//!
//! Public modules are those that `lab/experiments` uses, too: models, their batches, devices, and lines of output.

#![expect(clippy::missing_errors_doc, reason = "a subcommand ends with any error, and prints the message")]

mod attention;
pub mod batch;
mod beside;
#[cfg(feature = "cuda")]
pub mod card;
pub mod catching;
mod compare;
mod convolutions;
pub mod described;
pub mod device;
mod drill;
pub mod encoder;
mod exact;
mod graphs;
#[cfg(feature = "cuda")]
mod hold;
mod judged;
pub mod lesson;
pub mod line;
pub mod memory;
pub mod mode;
pub mod network;
mod observe;
mod optimizer;
pub mod planned;
mod products;
mod ranks;
mod recurrent;
mod soak;
mod steps;
mod sweep;
#[cfg(feature = "cuda")]
mod trace;
pub mod training;
mod unready;
pub mod vit;
mod warm;
pub mod weights;

use anyhow::bail;
use clap::{Args, Parser, Subcommand};
use gpu_tuned::{Options, Tuned};

use described::WithConfig;

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
    /// Gradients of a step by the library's kernels, beside Burn's: accumulated, checkpointed and replayed
    Beside(beside::Arguments),
    /// Memory and open files over a long run
    Soak(soak::Arguments),
    /// Time of optimizer steps of one global batch, in many splits into micro-batches
    Sweep(sweep::Arguments),
    /// Speed as planned from a lock, beside other micro-batches and precisions, with and without CUDA graphs
    Compare(compare::Arguments),
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
    /// Library operations against fp64, and their time beside Burn's
    Products(products::Arguments),
    /// Library convolutions and batch norms against fp64, and their time beside Burn's
    Convolutions(convolutions::Arguments),
    /// Adam by one kernel for each parameter, beside Burn's and fp64, and its time
    Optimizer(optimizer::Arguments),
    /// Library LSTMs and GRUs against fp64, and their time beside Burn's
    Recurrent(recurrent::Arguments),
    /// Library attention against fp64, and its time beside single operations
    Attention(attention::Arguments),
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
    /// Format of parameters and activations, in place of the planned one
    #[arg(long)]
    precision: Option<mode::Precision>,
}

/// Ends the process once the model is measured.
impl WithConfig for &Measure {
    type Output = anyhow::Result<()>;

    fn run<C: Tuned>(self, config: C) -> Self::Output {
        Options::default().start(config)?.measure_if_asked(self.model.name(), &self.model.subject())?;
        bail!(
            "nothing is measured without GPU_TUNED_MEASURE=1 in the environment, and the lock's path as GPU_TUNED_LOCK"
        )
    }
}

/// Runs the subcommand that the arguments of the process name.
pub fn run() -> anyhow::Result<()> {
    match Arguments::parse().command {
        #[cfg(feature = "cuda")]
        Command::Trace(arguments) => trace::run(&arguments),
        #[cfg(feature = "cuda")]
        Command::Hold(arguments) => hold::run(&arguments),
        Command::Measure(arguments) => {
            arguments.model.with_config(arguments.precision.map(gpu_tuned::Precision::from), &arguments)
        }
        Command::Beside(arguments) => beside::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Observe(arguments) => observe::run(&arguments),
        Command::Exact(arguments) => exact::run(&arguments),
        Command::Steps(arguments) => steps::run(&arguments),
        Command::Drill(arguments) => drill::run(&arguments),
        Command::Graphs(arguments) => graphs::run(&arguments),
        Command::Products(arguments) => products::run(&arguments),
        Command::Convolutions(arguments) => convolutions::run(&arguments),
        Command::Optimizer(arguments) => optimizer::run(&arguments),
        Command::Recurrent(arguments) => recurrent::run(&arguments),
        Command::Attention(arguments) => attention::run(&arguments),
        Command::Ranks(arguments) => ranks::run(&arguments),
        Command::Unready(arguments) => unready::run(&arguments),
        Command::Warm(arguments) => warm::run(&arguments),
    }
}
