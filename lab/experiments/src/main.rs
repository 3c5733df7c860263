//! Experiments with training on the GPU of this machine, or on the CPU in a build without CUDA.

mod baseline;
mod feed;
mod head;
mod learn;
mod naive;
mod overhead;

use clap::{Parser, Subcommand};

/// Measures training and prints lines of JSON
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
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
    match Arguments::parse().command {
        Command::Baseline(arguments) => baseline::run(&arguments),
        Command::Feed(arguments) => feed::run(&arguments),
        Command::Head(arguments) => head::run(&arguments),
        Command::Learn(arguments) => learn::run(&arguments),
        Command::Naive(arguments) => naive::run(&arguments),
        Command::Overhead(arguments) => overhead::run(&arguments),
    }
}
