//! `cargo gpu-tuned trace`: a recording as trace events.

mod args;

use std::path::Path;

use gpu_tuned_observe::recording::Record;
use gpu_tuned_observe::trace::{Steps, Trace, from_records};
use serde_json::json;

pub(crate) use args::TraceArgs;

use crate::args::Common;
use crate::error::Error;
use crate::json::PathText;
use crate::recording::{Recorded, beside, distinct, is_standard, quoted, read, write};
use crate::{Answer, Code};

/// Makes the trace and says where it is.
pub(crate) fn run(common: &Common, args: &TraceArgs) -> Result<Answer, Error> {
    let Recorded { records, mut notes } = read(&args.recording)?;
    let steps = args.steps.unwrap_or(Steps::ALL);
    let trace = from_records(&records, steps);
    if trace.is_empty() {
        notes.push(nothing(&args.recording, &records));
        return Ok(Answer { text: String::new(), notes, code: Code::No });
    }
    let output = args.output.clone().unwrap_or_else(|| beside(&args.recording, "trace.json"));
    if is_standard(&output) {
        let text = serde_json::to_string(&trace).expect("BUG: a trace is always JSON");
        return Ok(Answer { text: format!("{text}\n"), notes, code: Code::Fine });
    }
    distinct(&args.recording, &output)?;
    write(&output, |file| trace.write(file))?;
    Ok(Answer { text: said(common.json, &output, &trace, counted(&records, steps)), notes, code: Code::Fine })
}

fn counted(records: &[Record], steps: Steps) -> usize {
    records.iter().filter(|record| matches!(record, Record::Step(step) if steps.has(step.step))).count()
}

fn said(as_json: bool, output: &Path, trace: &Trace, steps: usize) -> String {
    let events = trace.len();
    if as_json {
        return format!("{:#}\n", json!({ "file": PathText(output), "steps": steps, "events": events }));
    }
    let steps = if steps == 1 { "1 step".to_owned() } else { format!("{steps} steps") };
    format!("{}: {steps}, {events} events\nOpen it at https://ui.perfetto.dev\n", output.display())
}

/// Why there is nothing to show.
fn nothing(recording: &Path, records: &[Record]) -> String {
    let steps = records.iter().filter_map(|record| match record {
        Record::Step(step) => Some(step.step),
        _ => None,
    });
    let span = steps.fold(None, |span: Option<(u64, u64)>, step| {
        let (first, last) = span.unwrap_or((step, step));
        Some((first.min(step), last.max(step)))
    });
    match span {
        Some((first, last)) => format!("{} has none of these steps: it has {first}..{last}", quoted(recording)),
        None => format!(
            "{} has no steps: a program records them with GPU_TUNED_RECORD=FILE, and a session of gpu-tuned",
            quoted(recording)
        ),
    }
}
