//! Throughput of planned settings, relative to the best batch of the sweep that fits the same memory.

mod choice;
mod column;
mod row;

use std::fmt::Write as _;

use anyhow::Result;
use gpu_tuned_core::Precision;
use gpu_tuned_core::measured::Mode;

pub(super) use choice::{Choice, Outcome};
pub(super) use column::Column;
use row::Row;

use super::subject::{Subject, cards};

/// A model in one precision with the memory of each card.
pub(super) struct Table {
    pub model: String,
    pub precision: Precision,
    pub rows: Vec<Row>,
}

/// Methods of choosing a batch.
const COLUMNS: [&str; 4] = ["planned, measured", "planned, derived only", "largest that fits", "batch 64"];

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

/// Writes the section about throughput.
pub(super) fn section(text: &mut String, tables: &[Table]) -> Result<()> {
    text.push_str(INTRODUCTION);
    for Table { model, precision, rows } in tables {
        writeln!(text, "\n### {model}, {precision}\n")?;
        text.push_str(
            "| memory | planned | by | samples/s | best that fits | planned / best | derived only | largest that fits | \
             batch 64 |\n|---|---|---|---|---|---|---|---|---|\n",
        );
        rows.iter().try_for_each(|row| row.line(text))?;
    }
    text.push_str(SUMMARY);
    let columns = Column::all(tables);
    columns[0].list_memory_sources(text)?;
    text.push_str(
        "\n| | rows | `~` | `≈` | geometric mean | worst | out of memory | memory observed | no plan | not timed |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, column) in COLUMNS.iter().zip(&columns) {
        column.line(text, name)?;
    }
    writeln!(text, "| goal of the first | | | | {:.2} | {:.2} | 0 | | | |", GOALS.0, GOALS.1)?;
    Ok(())
}

const INTRODUCTION: &str = "
## Throughput

Each row plans for the device with the memory of a smaller card. The best batch is the fastest of the sweep that fits this memory less
10% headroom. The memory of a batch is the sum of context, kernels and memory pools. The lock gives context and kernels. Pools are as
observed in such steps, or in one of their micro-batches. Otherwise the lock predicts the pools, without margin.

`c` marks activation checkpointing. Samples/s are medians of the sweep. `~` marks a step time interpolated between two batches, and `≈`
a step time extrapolated beyond all batches. The last three columns are other choices, with their ratio to the best:

- a plan from dimensions alone;
- the largest batch that fits, without checkpointing if possible, as batch finders choose it;
- batch 64.

A batch that needs more than the whole memory, or ran out of memory in the sweep, counts as out of memory.
";

const SUMMARY: &str = "
### Summary

Rows where a batch of the sweep fits. Rows without a plan or out of memory are counted separately and excluded from the means. The memory
of planned rows is

";
