//! `cargo gpu-tuned export`: recordings in the formats of other programs.

use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gpu_tuned_observe::export::tensorboard::EventWriter;
use gpu_tuned_observe::export::{Table, csv, prometheus};
use gpu_tuned_observe::recording::Record;
use serde::Serialize;

use crate::args::{Common, no_standard_stream};
use crate::error::Error;
use crate::files::{
    CSV_BEGIN, Recorded, alone, check_replaceable, distinct, is_standard, quoted, read_recording, write,
};
use crate::output::{Answer, Code, Form};

/// Convert a recording for other programs: TensorBoard's event files, CSV, or Prometheus' text format
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("export/help.txt"), group = clap::ArgGroup::new("form").required(true))]
pub(crate) struct ExportArgs {
    /// Recording of a program or the monitor, `-` for standard input
    #[arg(value_name = "RECORDING")]
    recording: PathBuf,
    /// Write an event file for TensorBoard into this folder
    #[arg(long, value_name = "DIR", group = "form", conflicts_with = "output", value_parser = no_standard_stream())]
    tensorboard: Option<PathBuf>,
    /// Write the last values, in Prometheus' text format
    #[arg(long, group = "form")]
    prometheus: bool,
    /// Write a table: steps, GPUs, the host, or the program's own values
    #[arg(long, value_name = "TABLE", group = "form", num_args = 0..=1, require_equals = true, default_missing_value = "steps", value_parser = table())]
    csv: Option<Table>,
    /// File to write; standard output by default and with `-`
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn table() -> impl TypedValueParser<Value = Table> {
    PossibleValuesParser::new(["steps", "gpus", "host", "values"]).map(|name| match name.as_str() {
        "gpus" => Table::Gpus,
        "host" => Table::Host,
        "values" => Table::Values,
        _ => Table::Steps,
    })
}

pub(crate) fn run(common: &Common, args: &ExportArgs) -> Result<Answer, Error> {
    if args.tensorboard.is_none() {
        alone(args.output.as_deref().unwrap_or(Path::new("-")), common.json)?;
    }
    let Recorded { records, mut notes } = read_recording(&args.recording)?;
    let written = if let Some(directory) = &args.tensorboard {
        let file = event_file(&records, directory)?;
        Written::new("tensorboard", &file, Some(format!("tensorboard --logdir {}", directory.display())))
    } else {
        let (form, begin, text) = match args.csv {
            Some(table) => ("csv", CSV_BEGIN, csv(&records, table)),
            None => ("prometheus", "# HELP gpu_tuned_", prometheus(&records)),
        };
        let is_empty = text.lines().count() < 2;
        notes.extend(is_empty.then(|| format!("{} has no records for this export", quoted(&args.recording))));
        let Some(file) = args.output.as_ref().filter(|output| !is_standard(output)) else {
            return Ok(Answer { text, form: Form::Data, notes, code: Code::Ok });
        };
        distinct(&args.recording, file)?;
        check_replaceable(file, "an export of this form", begin)?;
        write(file, |into| into.write_all(text.as_bytes()))?;
        Written::new(form, file, None)
    };
    Ok(Answer::new(("export", common.json), &written, || written.describe(), notes, Code::Ok))
}

#[derive(Serialize)]
struct Written {
    form: &'static str,
    file: String,
    /// Command that shows the file.
    #[serde(skip)]
    viewer: Option<String>,
}

impl Written {
    fn new(form: &'static str, file: &Path, viewer: Option<String>) -> Self {
        Self { form, file: file.display().to_string(), viewer }
    }

    fn describe(&self) -> String {
        let hint = self.viewer.as_ref().map(|command| format!("View it with: {command}\n")).unwrap_or_default();
        format!("{}\n{hint}", self.file)
    }
}

fn event_file(records: &[Record], directory: &Path) -> Result<PathBuf, Error> {
    let failed = |source| Error::Write { path: directory.to_owned(), source };
    let mut writer = EventWriter::create(directory).map_err(failed)?;
    let path = writer.path().to_owned();
    let written = records.iter().try_for_each(|record| writer.record(record)).and_then(|()| writer.flush());
    if let Err(source) = written {
        // TensorBoard would show the part that was written.
        let _ = fs::remove_file(&path);
        return Err(Error::Write { path, source });
    }
    Ok(path)
}
