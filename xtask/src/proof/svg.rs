//! Samples per second by the memory needed: one figure for each model.

use std::collections::BTreeMap;

use anyhow::Result;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::three_digits;
use gpu_tuned_observe::plot::{Limit, MemorySpeedPlot, ModeLine, Point, Ring};

use super::subject::{Card, Subject, cards};
use super::throughput::{Choice, Outcome, Table};

/// Draws the figure of one model, with marks at the planned points.
pub(super) fn figure(subject: &Subject, tables: &[&Table]) -> Result<String> {
    let limit =
        |card: Card| Limit { label: format!("{:.0}", card.facts.memory_total.gib()), memory: card.facts.memory_total };
    let figure = MemorySpeedPlot {
        title: subject.name.to_owned(),
        note: "dotted: memory of a card, GiB; bars: slowest to fastest repeat".to_owned(),
        lines: lines(subject)?,
        limits: cards(subject.device)?.into_iter().map(limit).collect(),
        rings: rings(tables),
        ringed: "planned".to_owned(),
        frontier: Vec::new(),
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

/// Marks each planned point with a ring, and a line to the memory of its cards.
fn rings(tables: &[&Table]) -> Vec<Ring> {
    let mut planned: BTreeMap<(Mode, u64), (&Choice, Vec<&Card>)> = BTreeMap::new();
    for row in tables.iter().flat_map(|table| &table.rows) {
        if let [Ok(choice), ..] = &row.choices {
            planned.entry((choice.mode, choice.batch)).or_insert((choice, Vec::new())).1.push(&row.card);
        }
    }
    let ring = |((mode, batch), (choice, cards)): ((Mode, u64), (&Choice, Vec<&Card>))| {
        let Outcome::Runs(found) = choice.outcome else { return None };
        let names: Vec<_> = cards.iter().map(|card| card.name.as_str()).collect();
        let (names, rate) = (names.join(", "), three_digits(found.samples_per_s));
        Some(Ring {
            memory: choice.need,
            samples_per_s: found.samples_per_s,
            until: cards.iter().map(|card| card.facts.memory_total).collect(),
            title: format!("planned for {names}: {mode}, batch {batch}, {rate} samples/s"),
        })
    };
    planned.into_iter().filter_map(ring).collect()
}
