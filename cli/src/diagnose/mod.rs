//! `cargo gpu-tuned diagnose`.

mod input;
mod program;
mod report;
mod trial;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use gpu_tuned_observe::diagnose::{Diagnosis, Severity, Tested, compare, diagnose};
use serde::Serialize;

use crate::args::{Common, no_standard_stream, number, parse_time};
use crate::error::Error;
use crate::files::once;
use crate::output::{Answer, Code};
use crate::process::Stop;
use input::Input;
use program::Ended;
use trial::Trial;

/// Find what slows a training run down, with the change to make and its predicted effect
///
/// Reads recordings of a training program and the monitor, watches a running program, or starts one and watches it. Each
/// finding has its evidence, a change, and a prediction. --try tests predictions: for each finding that settings can change,
/// the program runs again with these, for a limited time.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help.txt"))]
pub(crate) struct DiagnoseArgs {
    /// Recordings of one run, such as those of the program and of the monitor; `-` for standard input
    #[arg(value_name = "RECORDING", required_unless_present_any = ["pid", "command"], conflicts_with_all = ["pid", "command"])]
    pub recordings: Vec<PathBuf>,
    /// Process to watch
    #[arg(long, value_name = "PID", value_parser = number::<u32>, conflicts_with = "command")]
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

/// The diagnosis, with tests of predictions.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    diagnosis: Diagnosis,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<Ended>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tried: Vec<Trial>,
    /// Predictions of an earlier recording.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compared: Vec<Tested>,
}

pub(crate) fn run(common: &Common, args: &DiagnoseArgs) -> Result<Answer, Error> {
    once(args.before.iter().chain(&args.recordings))?;
    // A missing file is found before a program has run for hours.
    let before = args.before.as_ref().map(|path| Input::recorded(std::slice::from_ref(path))).transpose()?;
    if args.tries && args.command.is_empty() {
        return Err(Error::NothingToTry);
    }
    // While recordings are read, the first Ctrl-C ends the command.
    let is_watching = args.recordings.is_empty() || args.tries;
    let stop = if is_watching { Stop::on_signals()? } else { Stop::default() };
    let seen = Input::new(args, &stop)?;
    let diagnosis = diagnose(&seen.records);
    let compared = before.map_or_else(Vec::new, |before| compare(&diagnose(&before.records), &seen.records));
    let failed = seen.ended.as_ref().is_some_and(Ended::failed);
    let tried =
        if args.tries && !failed { trial::run(&diagnosis, &args.command, args.try_for, &stop)? } else { Vec::new() };
    let code = match diagnosis.severity() {
        _ if failed => Code::ProgramFailed,
        Some(Severity::Critical | Severity::Warning) => Code::No,
        None if diagnosis.judged.steps == 0 && diagnosis.judged.gpu_samples == 0 => Code::Unjudged,
        _ => Code::Ok,
    };
    let report = Report { diagnosis, program: seen.ended, tried, compared };
    Ok(Answer::new(("diagnose", common.json), &report, || report::text(&report), seen.notes, code))
}
