//! The command line of `diagnose`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const HELP: &str = "\
Examples:
  cargo gpu-tuned diagnose run.jsonl                       what was recorded
  cargo gpu-tuned diagnose run.jsonl gpus.jsonl            program and monitor in two files
  cargo gpu-tuned diagnose --pid 4711 --duration 1m        a program that runs
  cargo gpu-tuned diagnose -- target/release/train         a program that is started
  cargo gpu-tuned diagnose --try -- target/release/train   the same, and whether the changes bring what is predicted
  cargo gpu-tuned diagnose --before old.jsonl new.jsonl    whether a change in the code brought it

A program records its steps where GPU_TUNED_RECORD names a file, which is set for one that is started.

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
    /// Recordings of one run, such as those of the program and of the monitor
    #[arg(value_name = "RECORDING", required_unless_present_any = ["pid", "command"], conflicts_with_all = ["pid", "command"])]
    pub recordings: Vec<PathBuf>,
    /// Watch this process
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,
    /// Watch for this time, such as 30s or 5m, and stop a program that was started; 30s for a process that runs
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "recordings")]
    pub duration: Option<Duration>,
    /// Keep what is recorded in this file
    #[arg(long, value_name = "FILE", conflicts_with = "recordings")]
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

/// A time with its unit; without one, in seconds.
fn time(text: &str) -> Result<Duration, String> {
    let mistake = || "expected a time, such as 500ms, 30s, 5m or 1h".to_owned();
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(mistake()),
    };
    let seconds = number.parse::<f64>().map_err(|_| mistake())? * scale;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(mistake)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::time;

    #[test]
    fn times_have_units() {
        for (text, milliseconds) in [("500ms", 500), ("2s", 2000), ("2", 2000), ("1.5m", 90_000), ("1h", 3_600_000)] {
            assert_eq!(time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "0s", "-1s", "1d", "1.2.3s", "inf"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
