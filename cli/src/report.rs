//! `cargo gpu-tuned report`.

mod planned;
mod recorded;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpu_tuned_core::printable::for_file;
use gpu_tuned_nvml::Fit;
use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use crate::args::{Common, GoalArgs, TargetArgs};
use crate::error::Error;
use crate::files::{alone, check_replaceable, distinct, is_standard, once, read_recording, write};
use crate::output::{Answer, Code, Form, add_new};
use crate::project::{Project, WorkloadArgs};
use crate::target::{Target, Targets};

/// Write one self-contained HTML page with plans, measurements, pictures, and recorded runs
///
/// Without a GPU, for those that the package declares as features. A recording adds the run, its findings, and the steps,
/// GPUs and host over time. A page of recordings only needs no package.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("report/help.txt"))]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Recording of a training run, `-` for standard input; may be given several times
    #[arg(long = "recording", value_name = "FILE")]
    pub recordings: Vec<PathBuf>,
    /// File of the page, `-` for standard output
    #[arg(long, short, value_name = "FILE", default_value = "gpu-tuned.report.html")]
    pub output: PathBuf,
    #[command(flatten)]
    pub goal: GoalArgs,
}

impl ReportArgs {
    fn asks_for_plans(&self) -> bool {
        let Self { targets, workload, goal, .. } = self;
        targets.is_given() || workload.is_given() || goal.is_given()
    }
}

#[derive(Serialize)]
struct Written {
    file: String,
    bytes: usize,
    workloads: Vec<String>,
    targets: Vec<String>,
    recordings: usize,
}

struct Planned {
    package: Option<String>,
    /// True if every workload fits every target.
    fits: bool,
    workloads: Vec<String>,
    targets: Vec<String>,
    sections: Vec<Section>,
    notes: Vec<String>,
}

pub(crate) fn run(common: &Common, args: &ReportArgs) -> Result<Answer, Error> {
    alone(&args.output, common.json)?;
    check_replaceable(&args.output, "a report", PAGE_BEGIN)?;
    once(&args.recordings)?;
    let Planned { package, workloads, targets, fits, mut sections, mut notes } = planned(common, args)?;
    let code = if fits { Code::Ok } else { Code::No };
    for path in &args.recordings {
        distinct(path, &args.output)?;
        let recorded = read_recording(path)?;
        sections.push(recorded::section(path, &recorded.records));
        notes.extend(recorded.notes);
    }
    let title = package.unwrap_or_else(|| "training run".to_owned());
    let page = page(&title, &date(SystemTime::now()), &sections);
    if is_standard(&args.output) {
        return Ok(Answer { text: page, form: Form::Data, notes, code });
    }
    write(&args.output, |file| file.write_all(page.as_bytes()))?;
    let (file, recordings) = (args.output.display().to_string(), args.recordings.len());
    let written = Written { file, bytes: page.len(), workloads, targets, recordings };
    let text = || format!("wrote `{}`: {} KiB, open it in a browser\n", written.file, page.len() / 1024);
    Ok(Answer::new(("report", common.json), &written, text, notes, code))
}

/// The plans; none where only recordings are requested and there is nothing to plan.
fn planned(common: &Common, args: &ReportArgs) -> Result<Planned, Error> {
    let recordings_do = !args.recordings.is_empty() && !args.asks_for_plans() && !common.names_a_package();
    match of_package(common, args) {
        Err(error) if recordings_do && error.leaves_plans_open() => {
            let why = error.to_string();
            let why = why.lines().next().unwrap_or_default();
            let notes = vec![format!("the page has no plans: {why}")];
            Ok(Planned { package: None, fits: true, workloads: vec![], targets: vec![], sections: vec![], notes })
        }
        other => other,
    }
}

fn of_package(common: &Common, args: &ReportArgs) -> Result<Planned, Error> {
    let project = Project::read(common)?;
    let workloads = project.workloads(&args.workload)?;
    let targets = Targets::wanted(&project, &args.targets, false)?;
    let mut notes = targets.notes();
    notes.extend(args.goal.note());
    notes.extend(project.left_out(&workloads));
    let (mut sections, mut names, mut fits) = (Vec::new(), Vec::new(), true);
    for described in &workloads {
        let fit = |target: &Target| target.fit(described, &args.goal);
        let (chosen, reasons) = targets.chosen(fit);
        fits &= chosen.iter().all(|target| matches!(fit(target), Fit::Whole(())));
        add_new(&mut notes, reasons);
        add_new(&mut notes, chosen.iter().filter_map(|target| target.precision_note(described, &args.goal)));
        add_new(&mut names, chosen.iter().map(|target| target.name.clone()));
        sections.push(planned::section(&project, described, chosen, &args.goal, |misfit, target| {
            targets.add_remedy(misfit, target, fit);
        })?);
        sections.extend(planned::measurements(described));
    }
    Ok(Planned {
        package: Some(project.name().to_owned()),
        fits,
        workloads: workloads.iter().map(|described| described.name.to_owned()).collect(),
        targets: names,
        sections,
        notes,
    })
}

/// Formats a time of the years 1970 to 9999 to the minute, such as `2026-11-26 10:02 UTC`.
fn date(time: SystemTime) -> String {
    let end_of_9999 = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let text = humantime::format_rfc3339_seconds(time.clamp(UNIX_EPOCH, end_of_9999)).to_string();
    format!("{} UTC", text[..16].replace('T', " "))
}

const PAGE_BEGIN: &str = "<!DOCTYPE html><!-- cargo gpu-tuned report -->";

pub(crate) const STYLE: &str = include_str!("report/page.css");

struct Section {
    pub heading: String,
    /// Sentences for the begin of the page.
    pub summary: String,
    pub body: Markup,
}

/// Creates the page. `made` is its date.
fn page(package: &str, made: &str, sections: &[Section]) -> String {
    let title = format!("{package}: gpu-tuned report");
    let summaries: Vec<_> = sections.iter().map(|section| &*section.summary).filter(|text| !text.is_empty()).collect();
    let page = html! {
        (PreEscaped(PAGE_BEGIN))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(concat!("cargo gpu-tuned ", env!("CARGO_PKG_VERSION")));
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (package) }
                p class="pale" { "Made on " (made) " by cargo gpu-tuned " (env!("CARGO_PKG_VERSION")) "." }
                p { (marked_up(&summaries.join(" "))) }
                nav {
                    ul {
                        @for (index, section) in sections.iter().enumerate() {
                            li { a href={ "#section-" (index) } { (section.heading) } }
                        }
                    }
                }
                @for (index, section) in sections.iter().enumerate() {
                    section id={ "section-" (index) } {
                        h2 { (section.heading) }
                        (section.body)
                    }
                }
            }
        }
    };
    for_file(&page.into_string()).into_owned()
}

/// Text in which backticks enclose code.
fn marked_up(text: &str) -> Markup {
    let has_pairs = text.matches('`').count().is_multiple_of(2);
    html! {
        @if has_pairs {
            @for (index, part) in text.split('`').enumerate() {
                @if index % 2 == 1 { code { (part) } } @else { (part) }
            }
        } @else { (text) }
    }
}

/// A table. Headings of numbers begin with `>`, those of pale columns of sentences with `~`. The last cell of a shorter row
/// fills the rest of the row.
fn table(headings: &[impl AsRef<str>], rows: &[Vec<String>]) -> Markup {
    let column = |heading: &str| match heading.split_at_checked(1) {
        Some((">", name)) => ("number", name.to_owned()),
        Some(("~", name)) => ("pale", name.to_owned()),
        _ => ("text", heading.to_owned()),
    };
    let columns: Vec<_> = headings.iter().map(|heading| column(heading.as_ref())).collect();
    let rest = |row: &[String]| columns.len() + 1 - row.len();
    html! {
        table {
            thead {
                tr { @for (class, heading) in &columns { th class=(class) { (heading) } } }
            }
            tbody {
                @for row in rows {
                    tr {
                        @for (index, (cell, (class, name))) in row.iter().zip(&columns).enumerate() {
                            @if index + 1 == row.len() && rest(row) > 1 {
                                td class="wide" colspan=(rest(row)) { span { (marked_up(cell)) } }
                            } @else { td class=(class) data-label=(name) { span { (marked_up(cell)) } } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::{Section, marked_up, page, table};

    #[test]
    fn names_are_escaped_everywhere() {
        let heading = "<script>alert(1)</script>".to_owned();
        let section = Section { heading, summary: "`<b>`".to_owned(), body: html! { p { "</section>" } } };
        let page = page("a & \"b\"", "2026-11-26", &[section]);
        assert!(!page.contains("<script>") && !page.contains("<p></section>") && !page.contains("<b>"), "{page}");
        assert!(page.contains("<h1>a &amp; &quot;b&quot;</h1>"), "{page}");
    }

    #[test]
    fn backticks_in_pairs_enclose_code() {
        let text = |text| marked_up(text).into_string();
        assert_eq!(text("with `a` and `b`"), "with <code>a</code> and <code>b</code>");
        assert_eq!(text("a ` alone"), "a ` alone");
    }

    #[test]
    fn cells_have_the_names_of_their_columns_and_short_rows_fill_the_table() {
        let rows = [vec!["h200".to_owned(), "8".to_owned()], vec!["no `fit`".to_owned()]];
        let table = table(&["GPU", ">batch"], &rows).into_string();
        assert!(table.contains("<td class=\"number\" data-label=\"batch\"><span>8</span></td>"), "{table}");
        assert!(table.contains("<td class=\"wide\" colspan=\"2\"><span>no <code>fit</code></span></td>"), "{table}");
    }
}
