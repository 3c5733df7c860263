//! `cargo gpu-tuned export`: a recording for other programs.

mod args;

use std::path::{Path, PathBuf};

use gpu_tuned_observe::export::tensorboard::EventWriter;
use gpu_tuned_observe::export::{csv, prometheus};
use gpu_tuned_observe::recording::Record;
use serde_json::json;

pub(crate) use args::ExportArgs;

use crate::args::Common;
use crate::error::Error;
use crate::json::PathText;
use crate::recording::{Recorded, distinct, is_standard, read, write};
use crate::{Answer, Code};

/// Writes the recording in the form that is asked for.
pub(crate) fn run(common: &Common, args: &ExportArgs) -> Result<Answer, Error> {
    let Recorded { records, notes } = read(&args.recording)?;
    let text = if let Some(directory) = &args.tensorboard {
        let file = event_file(&records, directory)?;
        let hint = format!("tensorboard --logdir {}", directory.display());
        said(common, "tensorboard", &file, Some(&hint))
    } else {
        let (form, text) = match args.csv {
            Some(table) => ("csv", csv(&records, table.into())),
            None => ("prometheus", prometheus(&records)),
        };
        match args.output.as_ref().filter(|output| !is_standard(output)) {
            Some(file) => {
                distinct(&args.recording, file)?;
                write(file, |into| into.write_all(text.as_bytes()))?;
                said(common, form, file, None)
            }
            None if common.json => format!("{:#}\n", json!({ "form": form, "text": text })),
            None => text,
        }
    };
    Ok(Answer { text, notes, code: Code::Fine })
}

fn event_file(records: &[Record], directory: &Path) -> Result<PathBuf, Error> {
    let failed = |source| Error::Write { path: directory.to_owned(), source };
    let mut writer = EventWriter::create(directory).map_err(failed)?;
    for record in records {
        writer.record(record).map_err(failed)?;
    }
    writer.flush().map_err(failed)?;
    Ok(writer.path().to_owned())
}

fn said(common: &Common, form: &str, file: &Path, hint: Option<&str>) -> String {
    if common.json {
        return format!("{:#}\n", json!({ "form": form, "file": PathText(file) }));
    }
    let hint = hint.map(|hint| format!("Look at it with: {hint}\n")).unwrap_or_default();
    format!("{}\n{hint}", file.display())
}
