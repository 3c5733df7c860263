//! `cargo gpu-tuned report`.

mod args;
mod found;
mod measured;
mod page;
mod planned;
mod recorded;

use std::fs;
use std::io::Read;
use std::path::Path;

use serde::Serialize;

pub(crate) use args::ReportArgs;

use crate::args::Common;
use crate::error::Error;
use crate::project::Project;
use crate::recording::{distinct, read, write};
use crate::targets::Target;
use crate::{Answer, Code};

/// What `--json` prints.
#[derive(Serialize)]
struct Written<'a> {
    report: &'a Path,
    bytes: usize,
    workloads: Vec<&'a str>,
    targets: Vec<&'a str>,
    recordings: usize,
}

/// Writes the page.
pub(crate) fn run(common: &Common, args: &ReportArgs) -> Result<Answer, Error> {
    let project = Project::read(common)?;
    refuse_others(&args.output)?;
    let workloads = project.workloads(args.workload.as_deref())?;
    let (targets, mut notes) = Target::wanted(&project, args.targets.names(), false, args.targets.here)?;
    notes.extend(project.left_out(&workloads));
    let mut sections = Vec::new();
    for described in &workloads {
        sections.push(planned::section(&project, described, &targets, &args.goal)?);
        sections.extend(measured::section(described));
    }
    for path in &args.recordings {
        distinct(path, &args.output)?;
        let recorded = read(path)?;
        sections.push(recorded::section(path, &recorded.records));
        notes.extend(recorded.notes);
    }
    let page = page::page(project.name(), &sections);
    write(&args.output, |file| file.write_all(page.as_bytes()))?;
    let written = Written {
        report: &args.output,
        bytes: page.len(),
        workloads: workloads.iter().map(|described| described.name).collect(),
        targets: targets.iter().map(|target| target.name.as_str()).collect(),
        recordings: args.recordings.len(),
    };
    let text = if common.json {
        format!("{}\n", serde_json::to_string_pretty(&written).expect("BUG: names and numbers are always JSON"))
    } else {
        format!("wrote `{}`: {} KiB, to be opened in a browser\n", args.output.display(), page.len() / 1024)
    };
    Ok(Answer { text, notes, code: Code::Fine })
}

/// A file that is replaced has to be a report.
fn refuse_others(path: &Path) -> Result<(), Error> {
    // Opening a pipe would wait for somebody at its other end.
    if !fs::metadata(path).is_ok_and(|there| there.is_file()) {
        return Ok(());
    }
    let mut begin = Vec::new();
    // What cannot be read is told when it cannot be written.
    let read = fs::File::open(path).and_then(|file| file.take(page::BEGIN.len() as u64).read_to_end(&mut begin));
    if read.is_ok_and(|count| count > 0) && begin != page::BEGIN.as_bytes() {
        return Err(Error::NoReport { path: path.to_owned() });
    }
    Ok(())
}
