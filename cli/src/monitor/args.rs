//! Arguments of `monitor`.

use std::path::PathBuf;
use std::time::Duration;

use crate::args::no_standard_stream;
use crate::stdio::is_standard;
use crate::time::parse_time;

const HELP: &str = "\
Examples:
  cargo gpu-tuned monitor                                  all GPUs, on the whole terminal
  cargo gpu-tuned monitor --gpu 0 --interval 500ms         one GPU, twice a second
  cargo gpu-tuned monitor --pid 4711 --record run.jsonl    with a training program, recorded
  cargo gpu-tuned monitor --duration 60s --csv gpu.csv     a minute, and a table
  cargo gpu-tuned monitor --replay run.jsonl               a recording
  cargo gpu-tuned monitor --json | jq .                    one JSON object per line, the summary last

Keys:
  arrows, tab  another GPU        p  pause        PgUp, PgDn  back and forth in time
  q            quit               ?  help         +, -        less time in the graphs, or more

Exit codes:
  0  ok, also without a GPU: the host is watched then, with the reason
  2  bad input or usage: a file that cannot be read or written, a GPU or a process that is not there";

/// Watch the GPUs, the host and a training program: live on a terminal, as lines in a pipe, with a summary at the end
///
/// Steps that a program records into the file of --record are shown, too. Times are relative to monitor start; negative times
/// are from before, and are not counted. Nothing is changed on the GPUs, and no package is needed. Utilisation is the driver's:
/// the share of time in which any kernel ran. SM activity, from Hopper on, is the share of the GPU that kernels used.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct MonitorArgs {
    /// Poll interval, such as 500ms or 2s; at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Stop after this time, such as 30s, 5m or 1h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// Watch this GPU only, by the driver's number; may be given several times
    #[arg(long = "gpu", value_name = "N")]
    pub gpus: Vec<u32>,
    /// Also watch this process with its children, and stop when it ends
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Append samples to this recording; a program may write its steps into the same file
    #[arg(long, value_name = "FILE", value_parser = no_standard_stream())]
    pub record: Option<PathBuf>,
    /// Write comma-separated values to this file, or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", conflicts_with = "json")]
    pub csv: Option<PathBuf>,
    /// Show a recording instead of this machine, `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "pid", "duration", "interval"])]
    pub replay: Option<PathBuf>,
    /// Print lines also on a terminal
    #[arg(long)]
    pub plain: bool,
}

impl MonitorArgs {
    /// Returns true if the table goes to standard output.
    pub(super) fn prints_csv(&self) -> bool {
        self.csv.as_ref().is_some_and(|path| is_standard(path))
    }

    /// File of the table.
    pub(super) fn csv_file(&self) -> Option<&PathBuf> {
        self.csv.as_ref().filter(|_| !self.prints_csv())
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let least = gpu_tuned_observe::monitor::LEAST_INTERVAL;
    parse_time(text).and_then(|time| {
        let is_enough = (least..=Duration::from_secs(3600)).contains(&time);
        is_enough.then_some(time).ok_or_else(|| "expected 100ms to 1h".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::interval;

    #[test]
    fn intervals_have_bounds() {
        assert!(interval("50ms").is_err() && interval("2h").is_err() && interval("100ms").is_ok());
    }
}
