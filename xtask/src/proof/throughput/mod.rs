//! Throughput of planned settings, relative to the best batch of the sweep that fits the same memory.

mod column;
mod row;

use anyhow::Result;
use gpu_tuned_core::Precision;
use gpu_tuned_core::measured::Mode;

use super::subject::{Subject, cards};
use crate::markdown::{cells, table};
pub(super) use column::Column;
use row::Row;
pub(super) use row::{Choice, Outcome};

/// A model in one precision with the memory of each card.
pub(super) struct Table {
    pub model: String,
    pub precision: Precision,
    pub rows: Vec<Row>,
}

/// Methods of choosing a batch.
const METHODS: [&str; 4] = ["planned, measured", "planned, derived only", "largest that fits", "batch 64"];

/// Indices of choices.
pub(super) const PLANNED: usize = 0;
pub(super) const LARGEST: usize = 2;
pub(super) const FIXED: usize = 3;

/// Goals of the geometric mean and of the worst ratio.
pub(super) const GOALS: (f64, f64) = (0.98, 0.93);

/// Compares every model and precision that is in the lock and in the sweep.
pub(super) fn tables(subjects: &[Subject]) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    for subject in subjects {
        for precision in subject.precisions().filter(|precision| !swept(subject, *precision).is_empty()) {
            let rows = cards(subject.device)?.into_iter().map(|card| Row::new(subject, precision, card));
            tables.push(Table { model: subject.name.to_owned(), precision, rows: rows.collect::<Result<_>>()? });
        }
    }
    Ok(tables)
}

/// Every batch of the sweep in one precision that has a median.
fn swept(subject: &Subject, precision: Precision) -> Vec<(Mode, u64)> {
    let modes = [false, true].map(|checkpointing| Mode::new(precision, checkpointing));
    let batches = |mode: Mode| subject.sweep.medians(mode).into_iter().map(move |(batch, _)| (mode, batch));
    modes.into_iter().flat_map(batches).collect()
}

/// Formats the rows of each model and precision.
pub(super) fn by_card(tables: &[Table]) -> String {
    let section = |Table { model, precision, rows }: &Table| {
        let headings = [
            "memory",
            "planned",
            "by",
            "samples/s",
            "best that fits",
            "planned / best",
            "derived only",
            "largest that fits",
            "batch 64",
        ];
        format!("### {model}, {precision}\n\n{}\n", table(headings, rows.iter().map(Row::cells)))
    };
    tables.iter().map(section).collect()
}

/// Formats the outcomes of each method.
pub(super) fn methods(columns: &[Column; 4]) -> String {
    let headings = [
        "",
        "rows",
        "`~`",
        "`≈`",
        "geometric mean",
        "worst",
        "out of memory",
        "memory observed",
        "no plan",
        "not timed",
    ];
    let rows = METHODS.iter().zip(columns).map(|(name, column)| column.cells(name));
    let (mean, worst) = (format!("{:.2}", GOALS.0), format!("{:.2}", GOALS.1));
    table(headings, rows.chain([cells!["goal of the first", "", "", "", mean, worst, 0, "", "", ""]]))
}

/// Formats means and worst cases of each method.
pub(super) fn summary(columns: &[Column; 4]) -> String {
    let names = ["planned, with measurements", "planned, from dimensions only", "largest that fits", "batch 64"];
    let rows = names.iter().zip(columns).map(|(name, column)| column.summary(name));
    table(["micro-batch", "throughput / best that fits, mean", "worst", "out of memory"], rows)
}
