//! What came of everything that was asked for.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_observe::bench::{Begin, Figures, Header, Outcome, Planned, Setup, frontier};
use serde::Serialize;

use super::error::BenchError;
use super::results::Results;
use crate::error::Error;

/// What came of everything that was asked for.
pub(super) struct Found {
    /// That of all rows, but for what each of them says itself.
    pub header: Header,
    pub planned: Planned,
    /// In the order in which they were run.
    pub rows: Vec<Row>,
}

/// What came of a setup.
#[derive(Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub setup: Setup,
    pub outcome: Outcome,
    /// Whether no other is as fast with less memory, or faster with no more; `false` of what has no memory, too.
    pub frontier: bool,
    /// Whether it is what the program would train with.
    pub planned: bool,
    /// Whether it was f32 without TF32 on a device that has it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub full_f32: bool,
}

impl Row {
    fn new(setup: Setup, outcome: Outcome, planned: &Planned, header: &Header) -> Self {
        Self { setup, outcome, frontier: false, planned: planned.is(&setup), full_f32: header.full_f32 }
    }

    pub(super) const fn mode(&self) -> Mode {
        Mode { full_f32: self.full_f32, ..self.setup.mode() }
    }

    /// Such as `full_f32, batch 32`, of one whose batch was at hand.
    pub(super) fn name(&self) -> String {
        format!("{}, batch {}", self.mode(), self.setup.batch)
    }
}

impl Found {
    /// What the last processes have begun, as the results say, each under its header: that of f32 may be another one than
    /// that of other number formats.
    pub(super) fn of(results: &Results, ignored_bytes: u64, begun: &[(Header, Begin)]) -> Result<Self, Error> {
        let record = results.since(ignored_bytes)?;
        let missing = || BenchError::Lost { path: results.path().to_owned() };
        let (header, Begin { planned, .. }) = begun.last().ok_or_else(missing)?;
        let row = |header: &Header, setup: &Setup| {
            let outcome = record.under(header)?.outcomes.get(setup)?.clone();
            Some(Row::new(*setup, outcome, planned, header))
        };
        let rows = begun.iter().flat_map(|(header, begin)| begin.setups.iter().map(move |setup| row(header, setup)));
        let mut rows: Vec<_> = rows.collect::<Option<_>>().ok_or_else(missing)?;
        mark_frontier(&mut rows);
        // Rows say whether they ran without TF32.
        let header = Header { full_f32: false, ..header.clone() };
        Ok(Self { header, planned: *planned, rows })
    }

    /// Setups whose batch was at hand, with what was measured of them.
    pub(super) fn alone(&self) -> impl Iterator<Item = (&Row, &Figures)> {
        self.rows.iter().filter(|row| row.setup.feed.is_none()).filter_map(|row| Some((row, row.outcome.figures()?)))
    }

    /// Why there are no figures of a row.
    pub(super) fn why_not(&self, row: &Row) -> Option<String> {
        if row.outcome.figures().is_some() {
            return None;
        }
        // What fails with its batch at hand is not run otherwise.
        let fails_alone = |other: &Row| other.setup == row.setup.unfed() && other.outcome == row.outcome;
        let is_copied = row.setup.feed.is_some() && self.rows.iter().any(fails_alone);
        let is_failure = is_copied && !row.outcome.is_of_the_moment();
        let before = if is_failure { "not run, as its steps do not run with their batch at hand: " } else { "" };
        Some(format!("{before}{}", row.outcome))
    }

    /// Whether there is anything to draw.
    pub(super) fn has_memory(&self) -> bool {
        self.rows.iter().any(|row| place(row).is_some())
    }

    /// Why there is nothing to draw.
    pub(super) fn without_memory(&self) -> String {
        match (self.header.counts_memory, self.header.kind) {
            (false, DeviceKind::Cpu) => {
                "nothing counts the memory of this CPU: feature `counting-allocator` of gpu-tuned does".to_owned()
            }
            _ => "nothing ran whose memory is known".to_owned(),
        }
    }
}

/// Memory and speed, of steps whose batch was at hand.
pub(super) fn place(row: &Row) -> Option<(Bytes, f64)> {
    let figures = row.outcome.figures().filter(|_| row.setup.feed.is_none())?;
    Some((figures.reserved_bytes?, figures.samples_per_s.median))
}

fn mark_frontier(rows: &mut [Row]) {
    let (at, points): (Vec<usize>, Vec<_>) =
        rows.iter().enumerate().filter_map(|(at, row)| Some((at, place(row)?))).unzip();
    for (at, is_best) in at.into_iter().zip(frontier(&points)) {
        rows[at].frontier = is_best;
    }
}
