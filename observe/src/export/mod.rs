//! Recordings for other programs: CSV tables, Prometheus text, and with feature `tensorboard` TensorBoard's event files.
//!
//! All are functions over [`Record`]s. `tensorboard::EventWriter` also exports a run that goes on.

#[cfg(feature = "tensorboard")]
pub mod tensorboard;

use std::collections::BTreeMap;

use crate::metrics::csv::{gpu_cells, gpu_columns, host_cells, host_columns, line, quoted};
use crate::metrics::prometheus::Exposition;
use crate::metrics::step_figures;
use crate::monitor::{Gathering, Latest, expose};
use crate::recording::{Record, StepRecord, belongs_to, last_run, set_back};

/// A table of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Table {
    /// One row for each optimizer step of each rank.
    Steps,
    /// One row for each sample of each GPU.
    Gpus,
    /// One row for each sample of the host.
    Host,
    /// One row for each value that the program recorded.
    Values,
}

/// Formats a table of a recording as CSV (RFC 4180, lines end with `\n`): a line of names with units, and a line for each
/// row. `at_s` is seconds since 1970 (UTC). GPUs and host have the columns of
/// [`csv_header`](crate::monitor::csv_header). Unknown figures are empty.
pub fn csv(records: &[Record], table: Table) -> String {
    let mut uuids = BTreeMap::new();
    let mut text = line(columns(table));
    for record in records {
        match (table, record) {
            (Table::Gpus, Record::Start(start)) => {
                uuids.extend(start.gpus.iter().filter_map(|gpu| Some(((gpu.gpu, gpu.mig_slot), gpu.uuid.as_deref()?))));
            }
            (Table::Steps, Record::Step(step)) => {
                let keys = [format!("{:.6}", step.at), step.step.to_string(), step.rank.to_string()];
                let figures = step_figures(step).map(|(_, value)| value.map(|value| value.to_string()));
                text += &line(keys.into_iter().chain(figures.map(Option::unwrap_or_default)));
            }
            (Table::Gpus, Record::Gpu(sample)) => {
                let uuid = uuids.get(&(sample.gpu, sample.mig_slot)).copied().unwrap_or_default();
                text += &line(gpu_cells(sample, uuid));
            }
            (Table::Host, Record::Host(sample)) => {
                text += &line([format!("{:.3}", sample.at)].into_iter().chain(host_cells(sample)));
            }
            (Table::Values, Record::Value(value)) => {
                let step = value.step.map(|step| step.to_string()).unwrap_or_default();
                text += &line([format!("{:.6}", value.at), quoted(&value.name), step, value.value.to_string()]);
            }
            _ => {}
        }
    }
    text
}

fn columns(table: Table) -> Vec<String> {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>().into_iter();
    match table {
        Table::Steps => {
            let figures = step_figures(&StepRecord::new(0.0, 0)).map(|(key, _)| key.to_owned());
            names(&["at_s", "step", "rank"]).chain(figures).collect()
        }
        Table::Gpus => gpu_columns().collect(),
        Table::Host => names(&["at_s"]).chain(host_columns()).collect(),
        Table::Values => names(&["at_s", "name", "step", "value"]).collect(),
    }
}

/// Formats the end of a recording in Prometheus' text format (version 0.0.4): counters of the run that began last, and
/// gauges of the last samples. There are no times in it, as the node exporter's textfile collector requires.
///
/// Metrics and labels are those of [`monitor::to_prometheus`](crate::monitor::to_prometheus), and metrics of steps.
pub fn prometheus(records: &[Record]) -> String {
    let run = last_run(records);
    let begin = run.map_or(f64::NEG_INFINITY, |run| run.at);
    let (mut exposition, mut latest, mut gathering) = (Exposition::default(), Latest::default(), Gathering::default());
    if let Some(run) = run {
        exposition.run(run);
    }
    for record in records {
        match record {
            Record::Step(step) if belongs_to(run, step) => exposition.step(step),
            Record::Value(value) if value.at < begin => {}
            record => {
                latest.observe(record);
                gathering.observe(record);
            }
        }
    }
    for step in set_back(run, records) {
        exposition.step(step);
    }
    expose(&mut exposition, &latest, &gathering.summary());
    exposition.to_string()
}
