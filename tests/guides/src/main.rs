//! What tuning guides start from, as a program of its own: it is measured and timed as any user's program is, and it can be
//! spoilt on purpose, so that what is found can be held against what was done.

mod fault;
mod patches;
mod series;
mod task;
mod training;

use clap::{Parser, Subcommand};
use gpu_tuned::Options;
use tracing_subscriber::EnvFilter;

use fault::Faults;
use task::Task;

/// Trains what tuning guides begin with, well or badly
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A network of four convolutions of 32 channels over patches of 128 x 128
    Patches(Of<patches::Patches>),
    /// The same with norms over the batch
    BatchNormed(Of<patches::BatchNormed>),
    /// Two LSTM layers of width 64 over windows of 30 days
    Series(Of<series::Series>),
}

/// How it is trained.
#[derive(clap::Args)]
struct Of<C: clap::Args> {
    #[command(flatten)]
    config: C,
    #[command(flatten)]
    run: Run,
}

#[derive(clap::Args, Clone, Copy, Debug)]
struct Run {
    /// Optimizer steps
    #[arg(long, default_value_t = 200)]
    steps: usize,
    /// Milliseconds that a sample takes one core of the host
    #[arg(long, default_value_t = 0.0)]
    host_ms: f64,
    #[command(flatten)]
    faults: Faults,
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(std::io::stderr).init();
    match Arguments::parse().what {
        What::Patches(Of { config, run }) => train(config, run),
        What::BatchNormed(Of { config, run }) => train(config, run),
        What::Series(Of { config, run }) => train(config, run),
    }
}

fn train<C: Task>(config: C, run: Run) -> anyhow::Result<()> {
    let session = Options::default().start(config)?;
    session.measure_if_asked(C::NAME, &training::subject::<C>(session.config(), run.host_ms))?;
    println!("{session}");
    println!("{}", training::train(&session, run)?);
    Ok(())
}
