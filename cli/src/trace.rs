//! `cargo gpu-tuned trace`: recordings as trace events.

use std::path::{Path, PathBuf};

use gpu_tuned_core::printable::for_json;
use gpu_tuned_observe::recording::Record;
use gpu_tuned_observe::trace::{Steps, from_records};
use serde::Serialize;

use crate::args::Common;
use crate::error::Error;
use crate::files::{Recorded, alone, check_replaceable, distinct, is_standard, quoted, read_recording, write};
use crate::output::{Answer, Code, Form};

/// Convert a recording to a trace for Perfetto (<https://ui.perfetto.dev>) or `chrome://tracing`
///
/// Every optimizer step is shown with the phases of the host. Samples of the monitor in the same recording become counters.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("trace/help.txt"))]
pub(crate) struct TraceArgs {
    /// Recording of a program or the monitor, `-` for standard input
    #[arg(value_name = "RECORDING")]
    recording: PathBuf,
    /// File to write, `-` for standard output; by default `run.trace.json` beside `run.jsonl`, and standard output for
    /// standard input
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Steps to include, from the first to the last: `100..120`
    #[arg(long, value_name = "FIRST..LAST")]
    steps: Option<Steps>,
}

/// Begin of a trace.
const BEGIN: &str = "{\"otherData\":{\"producer\":\"gpu-tuned\"}";

pub(crate) fn run(common: &Common, args: &TraceArgs) -> Result<Answer, Error> {
    let Recorded { records, mut notes } = read_recording(&args.recording)?;
    let steps = args.steps.unwrap_or(Steps::ALL);
    let trace = from_records(&records, steps);
    if trace.is_empty() {
        notes.push(nothing(&args.recording, &records));
        let nothing = Written { file: None, steps: 0, events: 0 };
        return Ok(Answer::new(("trace", common.json), &nothing, String::new, notes, Code::No));
    }
    let output = args.output.clone().unwrap_or_else(|| output_beside(&args.recording));
    alone(&output, common.json)?;
    if is_standard(&output) {
        let text = serde_json::to_string(&trace).expect("BUG: a trace is always JSON");
        return Ok(Answer { text: for_json(&text).into_owned() + "\n", form: Form::Data, notes, code: Code::Ok });
    }
    distinct(&args.recording, &output)?;
    check_replaceable(&output, "a trace", BEGIN)?;
    write(&output, |file| trace.write(file))?;
    let written =
        Written { file: Some(output.display().to_string()), steps: counted(&records, steps), events: trace.len() };
    Ok(Answer::new(("trace", common.json), &written, || written.describe(&output), notes, Code::Ok))
}

fn counted(records: &[Record], steps: Steps) -> usize {
    records.iter().filter(|record| record.step().is_some_and(|step| steps.has(step.step))).count()
}

#[derive(Serialize)]
struct Written {
    /// `None` if nothing was written.
    file: Option<String>,
    steps: usize,
    events: usize,
}

impl Written {
    fn describe(&self, file: &Path) -> String {
        let Self { steps, events, .. } = self;
        let steps = if *steps == 1 { "1 step".to_owned() } else { format!("{steps} steps") };
        format!("{}: {steps}, {events} events\nOpen it at https://ui.perfetto.dev\n", file.display())
    }
}

fn nothing(recording: &Path, records: &[Record]) -> String {
    let steps = records.iter().filter_map(Record::step).map(|step| (step.step, step.step));
    match steps.reduce(|span, step| (span.0.min(step.0), span.1.max(step.1))) {
        Some((first, last)) => format!("{} has none of these steps: it has {first}..{last}", quoted(recording)),
        None => format!(
            "{} has no steps: a program records them with GPU_TUNED_RECORD=FILE, and a session of gpu-tuned",
            quoted(recording)
        ),
    }
}

/// The output for a recording: `run.trace.json` for `run.jsonl`, standard output for standard input.
fn output_beside(recording: &Path) -> PathBuf {
    if is_standard(recording) { recording.to_owned() } else { recording.with_extension("trace.json") }
}
