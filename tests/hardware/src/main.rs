//! Measures training steps on the GPU of this machine, or on the CPU where it is built without CUDA.

mod catching;
mod device;
#[cfg(feature = "cuda")]
mod dry;
mod line;
mod memory;
mod mode;
mod network;
mod real;
#[cfg(feature = "cuda")]
mod trace;
mod training;

use clap::{Parser, Subcommand};

/// Measures training steps and prints lines of JSON
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What three optimizer steps would reserve, from a dry run
    #[cfg(feature = "cuda")]
    Dry(dry::Arguments),
    /// Needs CUDA: build with `--features cuda`
    #[cfg(not(feature = "cuda"))]
    Dry {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        _rest: Vec<String>,
    },
    /// What the memory pools hold after each of many steps
    #[cfg(feature = "cuda")]
    Trace(trace::Arguments),
    /// How long optimizer steps take, and what they reserve
    Real(real::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        #[cfg(feature = "cuda")]
        Command::Dry(arguments) => dry::run(&arguments),
        #[cfg(not(feature = "cuda"))]
        Command::Dry { .. } => anyhow::bail!("a dry run needs CUDA: build with `--features cuda`"),
        #[cfg(feature = "cuda")]
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Real(arguments) => real::run(&arguments),
    }
}
