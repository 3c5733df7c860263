//! Experiments with training on the GPU of this machine, or on the CPU in a build without CUDA.

mod band;
mod baseline;
mod feed;
mod head;
mod learn;
mod naive;
mod overhead;

use std::sync::LazyLock;
use std::time::Instant;

use clap::{Parser, Subcommand};

/// Start of the program.
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Measures training and prints lines of JSON
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Losses of the library's kernels beside the band of a plain Burn loop over seeds, from lines of `baseline`
    Band(band::Arguments),
    /// Speed and loss of a plain Burn loop, or of this library with given settings
    Baseline(baseline::Arguments),
    /// Utilisation with loaders, and their memory on the device
    Feed(feed::Arguments),
    /// Head and loss of a language model, at once and in chunks: time and memory
    Head(head::Arguments),
    /// Results of training in a precision, from the same weights and over the same batches
    Learn(learn::Arguments),
    /// Speed-up over a naive configuration, as tuning guides promise: an LSTM and a CNN in both ways
    Naive(naive::Arguments),
    /// Overhead of the trainer over a plain loop, in time and memory
    Overhead(overhead::Arguments),
}

fn main() -> anyhow::Result<()> {
    LazyLock::force(&STARTED);
    match Arguments::parse().command {
        Command::Band(arguments) => band::run(&arguments),
        Command::Baseline(arguments) => baseline::run(&arguments),
        Command::Feed(arguments) => feed::run(&arguments),
        Command::Head(arguments) => head::run(&arguments),
        Command::Learn(arguments) => learn::run(&arguments),
        Command::Naive(arguments) => naive::run(&arguments),
        Command::Overhead(arguments) => overhead::run(&arguments),
    }
}
