//! `cargo gpu-tuned diagnose`.

mod args;
mod input;
mod program;
mod report;
mod trial;

use gpu_tuned_observe::diagnose::{Diagnosis, Severity, Tested, compare, diagnose};
use serde::Serialize;

pub(crate) use args::DiagnoseArgs;

use crate::args::Common;
use crate::error::Error;
use crate::files::once;
use crate::output::{Answer, Code, pretty};
use crate::process::Stop;
use input::Input;
use program::Ended;
use trial::Trial;

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
        _ => Code::Ok,
    };
    let report = Report { diagnosis, program: seen.ended, tried, compared };
    let text = if common.json { pretty(&report) } else { report::text(&report) };
    Ok(Answer { text, notes: seen.notes, code })
}
