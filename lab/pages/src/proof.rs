//! `docs/proof.md` and its figures: the quality of plans, from measurements on GPUs.

mod memory;
mod plots;
mod subject;
#[cfg(test)]
mod tests;
mod throughput;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::{Precision, grouped, three_digits};

use crate::figures::{folded, median, or_dash, percent, percentile};
use crate::generated::{cells, filled, table};
use crate::results::{FOLDER, Line, Results};
use memory::{AtMeasured, Bisection, Comparison, Pairs};
use subject::Subject;
use throughput::{Column, GOALS};

/// Model and precision of the README's picture.
const README: (&str, Precision) = ("resnet", Precision::F32);

/// Text of the page, with a name in braces for each generated part.
const PAGE: &str = include_str!("proof/page.md");

/// Generates the page and its figures, with their paths; empty without results.
pub fn files(root: &Path) -> Result<Vec<(String, String)>> {
    let results = Results::read(&root.join(FOLDER))?;
    results.map_or_else(|| Ok(Vec::new()), |results| generated(&results))
}

/// Formats the outcomes of each method of choosing a batch, for the README; empty without results.
pub fn summary(root: &Path) -> Result<String> {
    let Some(results) = Results::read(&root.join(FOLDER))? else { return Ok(String::new()) };
    let tables = throughput::tables(&Subject::all(&results)?)?;
    Ok(throughput::summary(&Column::all(&tables)))
}

/// Generates the page and its figures from results.
fn generated(results: &Results) -> Result<Vec<(String, String)>> {
    let subjects = Subject::all(results)?;
    ensure!(!subjects.is_empty(), "the lock has no workload that was measured here");
    let tables = throughput::tables(&subjects)?;
    let columns = Column::all(&tables);
    let comparison = Comparison::new(&subjects, results)?;
    let at_measured_sizes = memory::runs_at_measured(&subjects, results)?;
    let bisected = memory::bisections(&subjects, &results.boundary)?;
    let (mut files, mut figures) = (Vec::new(), String::new());
    for subject in swept(&subjects) {
        let (name, of_model) = (subject.name, tables.iter().filter(|table| table.model == subject.name));
        figures += &format!("![{name}: samples/s by the memory needed](proof/{name}.svg)\n\n");
        files.push((format!("docs/proof/{name}.svg"), plots::figure(subject, &of_model.collect::<Vec<_>>())?));
    }
    let is_in_readme = |table: &&throughput::Table| (&*table.model, table.precision) == README;
    if let Some(table) = tables.iter().find(is_in_readme) {
        let subject = subjects.iter().find(|subject| subject.name == table.model);
        let subject = subject.with_context(|| format!("there is no {}", table.model))?;
        files.push(("docs/pictures/throughput.svg".to_owned(), plots::readme(subject, table)?));
    }
    let parts = [
        ("claims", claims(&columns[0], &comparison, &at_measured_sizes, &bisected, &results.confirmed)),
        ("devices", devices(&subjects)),
        ("models", models(&subjects)),
        ("gaps", subjects.iter().map(gaps).collect()),
        ("throughput", throughput::by_card(&tables)),
        ("memory sources", columns[0].memory_sources()),
        ("methods", throughput::methods(&columns)),
        ("figures", figures),
        ("memory", comparison.summary()),
        ("excluded", comparison.excluded()),
        ("pairs", Pairs::new(results).describe()),
        ("predictions", comparison.details()),
        ("at measured", memory::at_measured_section(&at_measured_sizes)),
        ("confirmed", or_missing(memory::confirmed(&results.confirmed))),
        ("boundary", or_missing(memory::boundary_section(&bisected))),
        ("sweep", swept(&subjects).map(every_batch).collect()),
    ];
    files.push(("docs/proof.md".to_owned(), filled(PAGE, &parts)));
    Ok(files)
}

fn or_missing(table: String) -> String {
    if table.is_empty() { "Not measured yet.".to_owned() } else { table }
}

fn swept<'s, 'r>(subjects: &'s [Subject<'r>]) -> impl Iterator<Item = &'s Subject<'r>> {
    subjects.iter().filter(|subject| subject.sweep.modes().next().is_some())
}

/// Formats the claims, each with its goal.
fn claims(
    planned: &Column,
    comparison: &Comparison,
    at_measured_sizes: &[AtMeasured],
    bisected: &[Bisection],
    confirmed: &[Line],
) -> String {
    let errors = comparison.errors();
    let tail = |errors: &[f64]| or_dash(percentile(errors, 0.95), percent);
    let measured_errors = memory::errors(at_measured_sizes);
    let [lowest, highest] = memory::extremes(bisected);
    let rows = [
        cells!["planned settings that need more memory than available", planned.out_of_memory(), 0],
        cells![
            "planned settings that failed beside a process that occupied the other memory",
            memory::failed(confirmed),
            0
        ],
        cells![
            "throughput over the best that fits, geometric mean",
            planned.mean(),
            format!("at least {:.2}", GOALS.0)
        ],
        cells!["the same, worst", planned.worst(), format!("at least {:.2}", GOALS.1)],
        cells![
            "error of memory at measured micro-batches, median",
            or_dash(median(&measured_errors), percent),
            "at most 0.50%"
        ],
        cells!["the same, 95th percentile", tail(&measured_errors), "at most 3.00%"],
        cells![
            "runs at measured micro-batches that reserved more than the lock has ([plans use it as it is](#at-measured-micro-batches))",
            memory::exceeded_lock(at_measured_sizes),
            "-"
        ],
        cells!["the same, more than headroom leaves", memory::exceeded_room(at_measured_sizes), 0],
        cells!["error of interpolated memory, median", or_dash(median(&errors), percent), "-"],
        cells!["the same, 95th percentile", tail(&errors), "-"],
        cells!["runs at other sizes that reserved more than the bound", comparison.exceeded(), 0],
        cells!["the same, of [pairs], some with other kernels than the lock's", comparison.exceeded_in_pairs(), 0],
        cells!["bound over the real boundary, min", lowest, "not below"],
        cells!["the same, max", highest, "at most +3.00%"],
    ];
    table(["", "found", "goal"], rows)
}

/// Lists each device and release, with the models measured there.
fn devices(subjects: &[Subject]) -> String {
    let mut measured: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for subject in subjects {
        let on = subject.on();
        let release = |release: Option<&String>| or_dash(release, Clone::clone);
        let device = format!(
            "{} ({:.1} GiB, {} SMs), driver {}, Burn {}, CubeCL {}",
            on.device,
            on.memory_bytes.gib(),
            on.sm_count,
            release(on.driver.as_ref()),
            on.burn,
            release(on.cubecl.as_ref()),
        );
        measured.entry(device).or_default().push(subject.name);
    }
    measured.iter().map(|(device, models)| format!("- {device}: {}\n", models.join(", "))).collect()
}

/// Formats the measured models.
fn models(subjects: &[Subject]) -> String {
    let row = |subject: &Subject| {
        let modes = named(subject.on().mode.keys().copied());
        let (parameters, optimizer) = (grouped(subject.measured.parameters), subject.derived.optimizer);
        cells![subject.name, subject.kind.meaning, parameters, format!("{optimizer:?}"), modes]
    };
    table(["model", "", "parameters", "optimizer", "modes in the lock"], subjects.iter().map(row))
}

/// Describes modes that only the lock or only the sweep has.
fn gaps(subject: &Subject) -> String {
    let (name, modes) = (subject.name, &subject.on().mode);
    let unmeasured = named(subject.sweep.modes().map(|(mode, _)| mode).filter(|mode| !subject.has(*mode)));
    let unswept = named(modes.keys().copied().filter(|mode| subject.sweep.medians(*mode).is_empty()));
    let mut text = String::new();
    if !unmeasured.is_empty() {
        text += &format!("{name}: the lock lacks {unmeasured}.\n\n");
    }
    if !unswept.is_empty() {
        text += &format!("{name}: the sweep lacks {unswept}; the best batches below ignore it.\n\n");
    }
    text
}

fn named(modes: impl Iterator<Item = Mode>) -> String {
    modes.map(|mode| format!("`{mode}`")).collect::<Vec<_>>().join(", ")
}

/// Formats medians and ranges of all timed batches.
fn every_batch(subject: &Subject) -> String {
    let batches = subject.sweep.modes().flat_map(|(mode, batches)| batches.iter().map(move |it| (mode, it)));
    let rows = batches.map(|(mode, (batch, timed))| {
        let range = |(min, max)| format!("{} to {}", three_digits(min), three_digits(max));
        let (median, interval) = (or_dash(timed.median(), three_digits), or_dash(timed.interval(), range));
        cells![mode, batch, median, interval, timed.repeats(), timed.out_of_memory, timed.failed]
    });
    let headings = ["mode", "batch", "samples/s, median", "min to max", "repeats", "out of memory", "failed"];
    folded(subject.name, &table(headings, rows))
}
