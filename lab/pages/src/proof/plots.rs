//! Samples per second by the memory needed: one figure for each model.

use std::collections::BTreeMap;

use anyhow::Result;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::three_digits;
use gpu_tuned_observe::plot::{Limit, Mark, MarkKind, MemorySpeedPlot, ModeLine, PlotSize, Point};

use super::subject::{Card, Subject, cards};
use super::throughput::{Choice, FIXED, LARGEST, Outcome, PLANNED, Table};
use crate::results::RateSource;

/// Draws the figure of one model, with marks at the planned points and at other choices.
pub fn figure(subject: &Subject, tables: &[&Table]) -> Result<String> {
    let limit =
        |card: Card| Limit { label: format!("{:.0}", card.facts.memory_total.gib()), memory: card.facts.memory_total };
    let others =
        tables.iter().flat_map(|table| [(MarkKind::Largest, LARGEST), (MarkKind::Fixed, FIXED)].map(|it| (table, it)));
    let others = others.filter_map(|(table, (kind, column))| other(table, kind, column));
    let figure = MemorySpeedPlot {
        title: format!("{} on {}", subject.name, subject.on().device),
        note:
            "labels: batch; dotted: memory of a card, GiB; bars: slowest to fastest repeat; largest: on the whole GPU"
                .to_owned(),
        lines: lines(subject)?,
        limits: cards(subject.device)?.into_iter().map(limit).collect(),
        marks: planned(tables).into_iter().chain(others).collect(),
        ..MemorySpeedPlot::default()
    };
    Ok(figure.svg())
}

/// Draws the choices for the whole GPU in one mode, for the README.
pub fn readme(subject: &Subject, table: &Table) -> Result<String> {
    let (device, parameters) = (&subject.on().device, subject.measured.parameters as f64 / 1e6);
    let mode = Mode::new(table.precision, false);
    let columns = [(MarkKind::Planned, PLANNED), (MarkKind::Largest, LARGEST), (MarkKind::Fixed, FIXED)];
    let marks = columns.into_iter().filter_map(|(kind, column)| other(table, kind, column)).map(|mark| {
        let (batch, rate, memory) = (mark.batch, three_digits(mark.samples_per_s), mark.memory);
        let kind = if mark.kind == MarkKind::Fixed { String::new() } else { format!("{}: ", mark.kind) };
        Mark { title: format!("{kind}batch {batch}, {rate} samples/s, {memory}"), ..mark }
    });
    let figure = MemorySpeedPlot {
        size: PlotSize::Narrow,
        title: format!("{} on {device}", subject.name),
        note: format!("{parameters:.0} million parameters; bars: slowest to fastest repeat"),
        lines: lines(subject)?.into_iter().filter(|line| line.mode == mode).collect(),
        marks: marks.collect(),
        ..MemorySpeedPlot::default()
    };
    Ok(figure.svg())
}

fn lines(subject: &Subject) -> Result<Vec<ModeLine>> {
    let mut lines = Vec::new();
    for (mode, batches) in subject.sweep.modes().filter(|(mode, _)| subject.has(*mode)) {
        let mut points = Vec::new();
        for (batch, timed) in batches.iter().filter(|(_, timed)| timed.ran()) {
            let memory = subject.memory_needed(mode, *batch)?.0;
            let point = |samples_per_s| Point { batch: *batch, memory, samples_per_s, interval: timed.interval() };
            points.extend(timed.median().map(point));
        }
        lines.push(ModeLine { mode, points });
    }
    Ok(lines)
}

/// Marks each planned point, with a line to the memory of its cards.
fn planned(tables: &[&Table]) -> Vec<Mark> {
    let mut planned: BTreeMap<(Mode, u64), (&Choice, Vec<&Card>)> = BTreeMap::new();
    for row in tables.iter().flat_map(|table| &table.rows) {
        if let [Ok(choice), ..] = &row.choices {
            planned.entry((choice.mode, choice.batch)).or_insert((choice, Vec::new())).1.push(&row.card);
        }
    }
    let mark = |(choice, cards): (&Choice, Vec<&Card>)| {
        let names: Vec<_> = cards.iter().map(|card| card.name.as_str()).collect();
        let until = cards.iter().map(|card| card.facts.memory_total).collect();
        Some(Mark { until, ..mark(choice, MarkKind::Planned, &names.join(", "))? })
    };
    planned.into_values().filter_map(mark).collect()
}

/// Marks another choice for the whole GPU. Extrapolated speeds have no mark.
fn other(table: &Table, kind: MarkKind, column: usize) -> Option<Mark> {
    let row = table.rows.last()?;
    let choice = row.choices.get(column)?.as_ref().ok()?;
    let is_timed = matches!(choice.outcome, Outcome::Runs(rate) if rate.source != RateSource::Extrapolated);
    if is_timed { mark(choice, kind, &row.card.name) } else { None }
}

fn mark(choice: &Choice, kind: MarkKind, cards: &str) -> Option<Mark> {
    let Outcome::Runs(found) = choice.outcome else { return None };
    let (mode, batch, memory, samples_per_s) = (choice.mode, choice.batch, choice.need, found.samples_per_s);
    let rate = three_digits(samples_per_s);
    let title = format!("{kind}, {cards}: {mode}, batch {batch}, {rate} samples/s");
    Some(Mark { kind, batch, memory, samples_per_s, until: Vec::new(), title })
}
