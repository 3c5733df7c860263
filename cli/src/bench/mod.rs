//! `cargo gpu-tuned bench`.

mod args;
mod drive;
mod results;
mod table;

use std::time::Instant;

use gpu_tuned_core::atomic_file::Draft;
use gpu_tuned_observe::bench::{Comparison, Header, Planned, Row};
use gpu_tuned_observe::plot::MemorySpeedPlot;
use serde::Serialize;

use crate::args::Common;
use crate::error::Error;
use crate::files::{check_replaceable, write};
use crate::output::{Answer, Code};
use crate::project::Project;
pub(crate) use args::BenchArgs;
use drive::Drive;
use results::Results;

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    header: &'a Header,
    planned: Planned,
    points: Vec<Point<'a>>,
    results: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    svg: Option<String>,
    seconds: f64,
}

#[derive(Serialize)]
struct Point<'a> {
    #[serde(flatten)]
    row: &'a Row,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Runs the program until every configuration has a result, and reports the results.
///
/// The program appends results line by line, so that an interruption keeps them.
pub(crate) fn run(common: &Common, args: &BenchArgs) -> Result<Answer, Error> {
    if let Some(path) = &args.svg {
        check_replaceable(path, "a picture of this command", MemorySpeedPlot::SVG_BEGIN)?;
        // A file that cannot be written is refused before the long run.
        Draft::new(path).map(drop).map_err(|source| Error::Write { path: path.clone(), source })?;
    }
    let project = Project::read(common)?;
    let results = Results::below(&project.root)?;
    let clock = Instant::now();
    let ignored_bytes = if args.again { results.len()? } else { 0 };
    let drive = Drive { project: &project, common, args, results: &results, ignored_bytes };
    let begun = args.precisions().into_iter().map(|precision| drive.run(precision)).collect::<Result<Vec<_>, _>>()?;
    let lost = || Error::Lost { path: results.path().to_owned() };
    let comparison = Comparison::new(&results.since(ignored_bytes)?, &begun).ok_or_else(lost)?;
    let mut notes = Vec::new();
    let svg = args.svg.as_deref().filter(|_| comparison.has_memory());
    if let Some(path) = svg {
        write(path, |file| file.write_all(comparison.plot().svg().as_bytes()))?;
    }
    if args.svg.is_some() && svg.is_none() {
        notes.push(format!("no picture: {}", comparison.without_memory()));
    }
    let seconds = clock.elapsed().as_secs_f64();
    let Comparison { header, planned, rows } = &comparison;
    let report = Report {
        header,
        planned: *planned,
        points: rows.iter().map(|row| Point { row, why: comparison.why_not(row) }).collect(),
        results: results.path().display().to_string(),
        svg: svg.map(|path| path.display().to_string()),
        seconds,
    };
    let is_ok =
        comparison.rows.iter().any(|row| row.outcome.figures().is_some()) && svg.is_some() == args.svg.is_some();
    let code = if is_ok { Code::Ok } else { Code::No };
    Ok(Answer::new(("bench", common.json), &report, || table::text(&comparison, svg, seconds), notes, code))
}
