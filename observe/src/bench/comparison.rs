//! Comparison of all configurations: Pareto frontier, plan and picture.

use std::collections::BTreeMap;

use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::{Bytes, three_digits};
use serde::Serialize;

use super::{Begin, Figures, Header, Outcome, Planned, Record, Setup, frontier};
use crate::plot::{Limit, Mark, MarkKind, MemorySpeedPlot, ModeLine, Point};

/// Results of all configurations of a bench.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Header of all rows, without the fields that rows have themselves.
    pub header: Header,
    /// The planned settings.
    pub planned: Planned,
    /// Rows in the order of the runs.
    pub rows: Vec<Row>,
}

/// One configuration with its result.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The configuration.
    #[serde(flatten)]
    pub setup: Setup,
    /// Its result.
    pub outcome: Outcome,
    /// True on the Pareto frontier of throughput and memory.
    pub frontier: bool,
    /// True for the planned settings.
    pub planned: bool,
    /// True for fp32 without TF32 on a device with TF32.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub full_f32: bool,
}

impl Row {
    fn new(setup: Setup, outcome: Outcome, planned: &Planned, header: &Header) -> Self {
        Self { setup, outcome, frontier: false, planned: planned.matches(&setup), full_f32: header.full_f32 }
    }

    /// Precision and checkpointing.
    pub const fn mode(&self) -> Mode {
        Mode { full_f32: self.full_f32, ..self.setup.mode() }
    }

    /// Name without the loader: `full_f32, batch 32`.
    pub fn name(&self) -> String {
        format!("{}, batch {}", self.mode(), self.setup.batch)
    }
}

impl Comparison {
    /// Collects the results of the configurations that were begun, each under the header of its precision. Returns `None` if
    /// a result is missing.
    pub fn new(record: &Record, begun: &[(Header, Begin)]) -> Option<Self> {
        let (header, Begin { planned, .. }) = begun.last()?;
        let row = |header: &Header, setup: &Setup| {
            let outcome = record.section(header)?.outcomes.get(setup)?.clone();
            Some(Row::new(*setup, outcome, planned, header))
        };
        let rows = begun.iter().flat_map(|(header, begin)| begin.setups.iter().map(move |setup| row(header, setup)));
        let mut rows: Vec<_> = rows.collect::<Option<_>>()?;
        mark_frontier(&mut rows);
        // Rows have their own field for TF32.
        let header = Header { full_f32: false, ..header.clone() };
        Some(Self { header, planned: *planned, rows })
    }

    /// Measured configurations without a loader.
    pub fn alone(&self) -> impl Iterator<Item = (&Row, &Figures)> {
        self.rows.iter().filter(|row| row.setup.feed.is_none()).filter_map(|row| Some((row, row.outcome.figures()?)))
    }

    /// Reason why a row has no figures.
    pub fn why_not(&self, row: &Row) -> Option<String> {
        if row.outcome.figures().is_some() {
            return None;
        }
        // A configuration that fails without a loader is not run with one.
        let fails_alone = |other: &Row| other.setup == row.setup.unfed() && other.outcome == row.outcome;
        let is_copied = row.setup.feed.is_some() && self.rows.iter().any(fails_alone);
        let is_failure = is_copied && !row.outcome.is_transient();
        let before = if is_failure { "not run, as its steps fail without a loader: " } else { "" };
        Some(format!("{before}{}", row.outcome))
    }

    /// Returns true if any row has memory to draw.
    pub fn has_memory(&self) -> bool {
        self.rows.iter().any(|row| coordinates(row).is_some())
    }

    /// Reason why there is nothing to draw.
    pub fn without_memory(&self) -> String {
        match (self.header.counts_memory, self.header.kind) {
            (false, DeviceKind::Cpu) => {
                "nothing counts the memory of this CPU: feature `counting-allocator` of gpu-tuned does".to_owned()
            }
            _ => "nothing ran whose memory is known".to_owned(),
        }
    }

    /// Plots throughput over memory, a line for each mode.
    pub fn plot(&self) -> MemorySpeedPlot {
        let header = &self.header;
        let mut lines: BTreeMap<Mode, Vec<Point>> = BTreeMap::new();
        for (row, figures) in self.alone() {
            if let Some((memory, samples_per_s)) = coordinates(row) {
                let interval = Some((figures.samples_per_s.least, figures.samples_per_s.most));
                let point = Point { batch: row.setup.batch, memory, samples_per_s, interval };
                lines.entry(row.mode()).or_default().push(point);
            }
        }
        let mut frontier: Vec<_> = self.rows.iter().filter(|row| row.frontier).filter_map(coordinates).collect();
        frontier.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let is_gpu = header.kind == DeviceKind::Gpu;
        let limit = Limit { memory: header.memory_bytes, label: format!("{:.0} GiB", header.memory_bytes.gib()) };
        MemorySpeedPlot {
            title: format!("{} on {}", header.workload, header.device),
            note: if is_gpu { "dotted: the GPU's memory; grey: Pareto frontier" } else { "grey: Pareto frontier" }
                .to_owned(),
            lines: lines.into_iter().map(|(mode, points)| ModeLine { mode, points }).collect(),
            limits: if is_gpu { vec![limit] } else { Vec::new() },
            marks: self.marks(),
            frontier,
            ..MemorySpeedPlot::default()
        }
    }

    /// The plan, and what others would choose in its precision.
    fn marks(&self) -> Vec<Mark> {
        let mark = |kind, row: &Row| {
            let (memory, samples_per_s) = coordinates(row)?;
            let title = format!("{kind}: {}, {} samples/s", row.name(), three_digits(samples_per_s));
            Some(Mark { kind, batch: row.setup.batch, memory, samples_per_s, until: Vec::new(), title })
        };
        let planned = || self.rows.iter().filter(|row| row.planned);
        let mode = planned().next().map(|row| Mode { checkpointing: false, ..row.mode() });
        let same = || self.rows.iter().filter(|row| Some(row.mode()) == mode && row.setup.feed.is_none());
        let ran = || same().filter(|row| coordinates(row).is_some());
        let misfits = |row: &&Row| matches!(row.outcome, Outcome::DoesNotFit { .. } | Outcome::OutOfMemory { .. });
        // Without a larger batch that failed, the largest is only the largest of the request.
        let largest = same().find(misfits).and_then(|_| ran().max_by_key(|row| row.setup.batch));
        let fixed = ran().find(|row| row.setup.batch == MarkKind::FIXED_BATCH);
        let of_plan = planned().filter_map(|row| mark(MarkKind::Planned, row));
        let of_largest = largest.and_then(|row| mark(MarkKind::Largest, row));
        let of_fixed = fixed.and_then(|row| mark(MarkKind::Fixed, row));
        of_plan.chain(of_largest).chain(of_fixed).collect()
    }
}

/// Memory and throughput of a row without a loader.
fn coordinates(row: &Row) -> Option<(Bytes, f64)> {
    let figures = row.outcome.figures().filter(|_| row.setup.feed.is_none())?;
    Some((figures.reserved_bytes?, figures.samples_per_s.median))
}

fn mark_frontier(rows: &mut [Row]) {
    let (at, points): (Vec<usize>, Vec<_>) =
        rows.iter().enumerate().filter_map(|(at, row)| Some((at, coordinates(row)?))).unzip();
    for (at, is_best) in at.into_iter().zip(frontier(&points)) {
        rows[at].frontier = is_best;
    }
}
