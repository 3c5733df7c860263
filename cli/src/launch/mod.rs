//! `cargo gpu-tuned launch`.

mod output;
mod ranks;

use std::ffi::OsString;
use std::time::Instant;

use gpu_tuned_nvml::detect;
use serde::Serialize;

use crate::args::{Common, number};
use crate::error::Error;
use crate::output::{Answer, Code, note};
use crate::process::Stop;
use ranks::{Attempt, Ranks};

/// Start a program as several ranks on this machine, one process for each GPU
///
/// Each process gets the variables of torchrun: `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `MASTER_ADDR` and
/// `MASTER_PORT`. A program with feature `distributed` of gpu-tuned then trains on all GPUs together. Each line of output
/// begins with the number of its rank.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help.txt"))]
pub(crate) struct LaunchArgs {
    /// Number of processes, up to 1024; without it, one for each GPU
    #[arg(long, value_name = "NUMBER", value_parser = rank_count)]
    ranks: Option<u32>,
    /// Start all ranks again after a failure, up to so many times
    #[arg(long, value_name = "NUMBER", value_parser = number::<u32>, default_value = "0")]
    restarts: u32,
    /// Program to start, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn rank_count(text: &str) -> Result<u32, String> {
    let count = number(text).ok().filter(|count| (1..=1024).contains(count));
    count.ok_or_else(|| "expected a number from 1 to 1024".to_owned())
}

#[derive(Serialize)]
struct Report {
    ranks: u32,
    restarts: u32,
    seconds: f64,
}

pub(crate) fn run(common: &Common, args: &LaunchArgs) -> Result<Answer, Error> {
    let stop = Stop::on_signals()?;
    let begin = Instant::now();
    let count = args.ranks.unwrap_or_else(|| u32::try_from(detect().gpus.len()).unwrap_or(u32::MAX).max(1));
    let ranks = Ranks { command: &args.command, count, to_stderr: common.json, stop: &stop };
    let mut restarts = 0;
    loop {
        match ranks.run()? {
            Attempt::Succeeded => break,
            Attempt::Stopped { signal } => return Err(Error::Stopped { signal, left: "" }),
            Attempt::Failed { rank, how, .. } if restarts < args.restarts => {
                restarts += 1;
                note(&format!("rank {rank} failed: {how}; restart {restarts} of {}", args.restarts));
            }
            Attempt::Failed { rank, how, code } => return Err(Error::RankFailed { rank, how, code, restarts }),
        }
    }
    let report = Report { ranks: count, restarts, seconds: begin.elapsed().as_secs_f64() };
    Ok(Answer::new(("launch", common.json), &report, String::new, Vec::new(), Code::Ok))
}
