//! Arguments of `diagnose`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::args::no_standard_stream;
use crate::time::parse_time;

const HELP: &str = "\
Examples:
  cargo gpu-tuned diagnose run.jsonl                       a recording
  cargo gpu-tuned diagnose run.jsonl gpus.jsonl            program and monitor in two files
  cargo gpu-tuned diagnose --pid 4711 --duration 1m        a running program
  cargo gpu-tuned diagnose -- target/release/train         a program to start
  cargo gpu-tuned diagnose --try -- target/release/train   and run again with proposed settings
  cargo gpu-tuned diagnose --before old.jsonl new.jsonl    the effect of a change in the code

A started program records its steps, because GPU_TUNED_RECORD is set. It is stopped with all of its children after --duration \
or by Ctrl-C, and its recording is judged; a second Ctrl-C ends everything at once. Children that outlive it are ended, too.

The output of a started program goes through a pipe to standard error, so that it prints lines. Its input can be a file or a \
pipe; the system stops a program that reads from the terminal.

Exit codes:
  0  ok: no finding that costs 10% or more of the time or ends the run
  1  findings
  2  bad input or usage
  3  the started program failed; its recording is judged all the same";

/// Find what slows a training run down, with the change to make and its predicted effect
///
/// Reads recordings of a training program and the monitor, watches a running program, or starts one and watches it. Each
/// finding has its evidence, a change, and a prediction. --try tests predictions: for each finding that settings can change,
/// the program runs again with these, for a limited time.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct DiagnoseArgs {
    /// Recordings of one run, such as those of the program and of the monitor; `-` for standard input
    #[arg(value_name = "RECORDING", required_unless_present_any = ["pid", "command"], conflicts_with_all = ["pid", "command"])]
    pub recordings: Vec<PathBuf>,
    /// Process to watch
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,
    /// Time to watch, such as 30s or 5m, after which a started program is stopped; 30s for a running process
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "recordings")]
    pub duration: Option<Duration>,
    /// Keep the recording in this file
    #[arg(long, value_name = "FILE", conflicts_with = "recordings", value_parser = no_standard_stream())]
    pub record: Option<PathBuf>,
    /// Run the program again with proposed settings, and compare with the predictions
    #[arg(long = "try", requires = "command")]
    pub tries: bool,
    /// The longest time of each such run
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "2m", requires = "tries")]
    pub try_for: Duration,
    /// Recording from before a change, whose predictions are compared with this run
    #[arg(long, value_name = "RECORDING", conflicts_with = "tries")]
    pub before: Option<PathBuf>,
    /// Program to start, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
