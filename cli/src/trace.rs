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
    let Some(trace) = from_records(&records, steps) else {
        notes.push(nothing(&args.recording, &records));
        let nothing = Written { file: None, steps: 0, events: 0 };
        return Ok(Answer::new(("trace", common.json), &nothing, String::new, notes, Code::No));
    };
    let beside = || args.recording.with_extension(if is_standard(&args.recording) { "" } else { "trace.json" });
    let output = args.output.clone().unwrap_or_else(beside);
    alone(&output, common.json)?;
    if is_standard(&output) {
        let mut text = Vec::new();
        trace.write(&mut text).expect("BUG: memory takes all bytes");
        text.push(b'\n');
        let text = String::from_utf8(text).expect("BUG: JSON is UTF-8");
        return Ok(Answer { text: for_json(&text).into_owned(), form: Form::Data, notes, code: Code::Ok });
    }
    distinct(&args.recording, &output)?;
    check_replaceable(&output, "a trace", BEGIN)?;
    let mut events = 0;
    write(&output, |file| trace.write(file).map(|count| events = count))?;
    let steps = records.iter().filter_map(Record::step).filter(|step| steps.has(step.step)).count();
    let written = Written { file: Some(output.display().to_string()), steps, events };
    Ok(Answer::new(("trace", common.json), &written, || written.describe(&output), notes, Code::Ok))
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
