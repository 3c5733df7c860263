//! `cargo gpu-tuned diagnose`.

mod args;
mod failure;
mod program;
mod report;
mod seen;
mod trial;
mod watch;

use gpu_tuned_observe::diagnose::{Diagnosis, Severity, Tested, compare, diagnose};
use serde::Serialize;

pub(crate) use args::DiagnoseArgs;
pub(crate) use failure::Failure;
pub(crate) use report::expectation;

use crate::args::Common;
use crate::error::Error;
use crate::recording::once;
use crate::stop::Stop;
use crate::{Answer, Code};
use program::Ended;
use seen::Seen;
use trial::Trial;

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    diagnosis: Diagnosis,
    /// Of a program that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<Ended>,
    /// Runs with what findings propose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tried: Vec<Trial>,
    /// Predictions from before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compared: Vec<Tested>,
}

/// Diagnoses a run, and puts predictions to the test where that is asked for.
pub(crate) fn run(common: &Common, args: &DiagnoseArgs) -> Result<Answer, Error> {
    once(args.before.iter().chain(&args.recordings))?;
    // What is missing is missed before a program has run for hours.
    let before = args.before.as_ref().map(|path| Seen::recorded(std::slice::from_ref(path))).transpose()?;
    if args.tries && args.command.is_empty() {
        return Err(Failure::NothingToTry.into());
    }
    // Where recordings are only read, the first Ctrl-C ends it.
    let is_watching = args.recordings.is_empty() || args.tries;
    let stop = if is_watching { Stop::on_signals().map_err(Failure::Signals)? } else { Stop::default() };
    let seen = Seen::of(args, &stop)?;
    let diagnosis = diagnose(&seen.records);
    let compared = before.map_or_else(Vec::new, |before| compare(&diagnose(&before.records), &seen.records));
    let failed = seen.ended.as_ref().is_some_and(Ended::failed);
    let tried =
        if args.tries && !failed { trial::run(&diagnosis, &args.command, args.try_for, &stop)? } else { Vec::new() };
    let code = match diagnosis.severity() {
        _ if failed => Code::ProgramFailed,
        Some(Severity::Critical | Severity::Warning) => Code::No,
        _ => Code::Fine,
    };
    let report = Report { diagnosis, program: seen.ended, tried, compared };
    let text = if common.json {
        format!("{}\n", serde_json::to_string_pretty(&report).expect("BUG: findings are always JSON"))
    } else {
        report::text(&report)
    };
    Ok(Answer { text, notes: seen.notes, code })
}
