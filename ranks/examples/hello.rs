//! Joins all ranks that a launcher starts, sums their numbers, and prints the sum: a test of launcher, port and secret.
//!
//! ```sh
//! cargo gpu-tuned launch --ranks 4 -- target/debug/examples/hello
//! ```

use std::error::Error;
use std::process::ExitCode;

use gpu_tuned_ranks::{Group, Launch, Limits, Terms};

fn main() -> ExitCode {
    let failed = |error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    };
    run().map_or_else(failed, |()| ExitCode::SUCCESS)
}

fn run() -> Result<(), Box<dyn Error>> {
    let Some(launch) = Launch::from_env()? else {
        println!("no launcher started this process");
        return Ok(());
    };
    let group = Group::join(&launch, Terms::default().same("example", "hello"), Limits::default())?;
    let sum = group.sum(vec![launch.rank as f32 + 1.0])?;
    println!(
        "rank {} of {}, number {} of its host, by {}: sum {}",
        launch.rank, launch.world_size, launch.local_rank, launch.launcher, sum[0]
    );
    group.finish()?;
    Ok(())
}
