//! The command line of `diagnose`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::args::no_standard_stream;
use crate::time::time;

const HELP: &str = "\
Examples:
  cargo gpu-tuned diagnose run.jsonl                       what was recorded
  cargo gpu-tuned diagnose run.jsonl gpus.jsonl            program and monitor in two files
  cargo gpu-tuned diagnose --pid 4711 --duration 1m        a program that runs
  cargo gpu-tuned diagnose -- target/release/train         a program that is started
  cargo gpu-tuned diagnose --try -- target/release/train   and run again with what is proposed
  cargo gpu-tuned diagnose --before old.jsonl new.jsonl    whether a change in the code brought it

A program records its steps where GPU_TUNED_RECORD names a file, which is set for one that is started. It is stopped with \
all that it has started: when --duration is over, and by Ctrl-C, after which what it recorded is judged; a second Ctrl-C \
ends everything at once. What it starts and leaves behind is ended, too.

What a program that is started prints goes through a pipe to standard error, so that it sees no terminal there and prints \
lines. What it reads may come from a file or a pipe: one that reads from the terminal, or sets it up, is held by the system.

Exit codes:
  0  nothing that costs a tenth of the time or ends the run; hints at most
  1  findings
  2  bad input or usage
  3  the program that was started failed; what it recorded until then is judged all the same";

/// Find what holds a training run up, what to change, and what that will bring
///
/// Reads what a training program and the monitor have recorded, watches a program that runs, or starts one and watches it.
/// Each finding has its evidence, the change to make, and a prediction, which --try puts to the test: of each finding that
/// settings change, the program runs again with them, for a bounded time.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct DiagnoseArgs {
    /// Recordings of one run, such as those of the program and of the monitor; `-` for standard input
    #[arg(value_name = "RECORDING", required_unless_present_any = ["pid", "command"], conflicts_with_all = ["pid", "command"])]
    pub recordings: Vec<PathBuf>,
    /// Watch this process
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,
    /// Watch for this time, such as 30s or 5m, and stop a program that was started; 30s for a process that runs
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "recordings")]
    pub duration: Option<Duration>,
    /// Keep what is recorded in this file
    #[arg(long, value_name = "FILE", conflicts_with = "recordings", value_parser = no_standard_stream())]
    pub record: Option<PathBuf>,
    /// Run the program again with what is proposed, and compare with what was predicted
    #[arg(long = "try", requires = "command")]
    pub tries: bool,
    /// The longest time of each such run
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "2m", requires = "tries")]
    pub try_for: Duration,
    /// A recording from before the change: its predictions are compared with this run
    #[arg(long, value_name = "RECORDING", conflicts_with = "tries")]
    pub before: Option<PathBuf>,
    /// A program to start, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
