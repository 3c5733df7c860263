//! The starting points of tuning guides as a program. The program is measured and timed like a user's program.
//! Deliberate mistakes can be switched on, to compare findings with them.

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

/// Trains the starting points of tuning guides, well or badly
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: TaskName,
}

#[derive(Subcommand)]
enum TaskName {
    /// A network of four convolutions of 32 channels over patches of 128 x 128
    Patches(TaskArguments<patches::Patches>),
    /// The same network with norms over the batch
    BatchNormed(TaskArguments<patches::BatchNormed>),
    /// Two LSTM layers of width 64 over windows of 30 days
    Series(TaskArguments<series::Series>),
}

/// Settings of a task.
#[derive(clap::Args)]
struct TaskArguments<C: clap::Args> {
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
    /// Milliseconds of one host core for a sample
    #[arg(long, default_value_t = 0.0)]
    host_ms: f64,
    #[command(flatten)]
    faults: Faults,
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(std::io::stderr).init();
    match Arguments::parse().task {
        TaskName::Patches(TaskArguments { config, run }) => train(config, run),
        TaskName::BatchNormed(TaskArguments { config, run }) => train(config, run),
        TaskName::Series(TaskArguments { config, run }) => train(config, run),
    }
}

fn train<C: Task>(config: C, run: Run) -> anyhow::Result<()> {
    let session = Options::default().start(config)?;
    session.measure_if_asked(C::NAME, &training::subject::<C>(session.config(), run.host_ms))?;
    println!("{session}");
    println!("{}", training::train(&session, run)?);
    Ok(())
}
