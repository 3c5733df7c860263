//! Tables of recordings and samples as CSV (RFC 4180, lines end with `\n`).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use gpu_tuned_core::printable::for_file;

use crate::metrics::{HOST_FIGURES, gpu_figures, step_figures, throttle_key};
use crate::recording::{GpuSample, HostSample, Record, StepRecord};

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
/// [`csv_header`]. Unknown figures are empty.
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
                let figures = step_figures(step).map(|(.., value)| value.map(|value| value.to_string()));
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
            let figures = step_figures(&StepRecord::new(0.0, 0)).map(|(_, key, _)| key.to_owned());
            names(&["at_s", "step", "rank"]).chain(figures).collect()
        }
        Table::Gpus => gpu_columns().collect(),
        Table::Host => names(&["at_s"]).chain(host_columns()).collect(),
        Table::Values => names(&["at_s", "name", "step", "value"]).collect(),
    }
}

/// Returns the first line: the names of the columns, with units.
///
/// A line belongs to one GPU at one moment, or to the host: then its column `gpu` is empty.
pub fn csv_header() -> String {
    line(gpu_columns().chain(host_columns()))
}

/// Returns the line of a sample, with the UUID of its GPU; `None` for other records.
pub fn csv_line(record: &Record, uuid: Option<&str>) -> Option<String> {
    let empty = |_| String::new();
    match record {
        Record::Gpu(sample) => Some(line(gpu_cells(sample, uuid.unwrap_or_default()).chain(host_columns().map(empty)))),
        Record::Host(sample) => {
            let time = [format!("{:.3}", sample.at)].into_iter();
            Some(line(time.chain(gpu_columns().skip(1).map(empty)).chain(host_cells(sample))))
        }
        _ => None,
    }
}

/// Returns the columns of GPU samples. A MIG slice has the number of its GPU and a slot.
fn gpu_columns() -> impl Iterator<Item = String> {
    let keys = ["at_s", "gpu", "mig_slot", "uuid"].into_iter();
    let keys = keys.chain(gpu_figures().map(|figure| figure.key)).chain(["throttle", "trouble"]);
    keys.map(str::to_owned)
}

fn gpu_cells(sample: &GpuSample, uuid: &str) -> impl Iterator<Item = String> {
    let slot = sample.mig_slot.map(|slot| slot.to_string()).unwrap_or_default();
    let reasons: Vec<_> = sample.throttle.iter().map(|reason| throttle_key(*reason)).collect();
    let trouble = sample.trouble.as_deref().unwrap_or_default();
    let keys = [format!("{:.3}", sample.at), sample.gpu.to_string(), slot, quoted(uuid)];
    let figures = gpu_figures().map(|figure| number((figure.of)(sample)));
    keys.into_iter().chain(figures).chain([reasons.join(" "), quoted(trouble)])
}

/// Returns the columns of host samples, without the time.
fn host_columns() -> impl Iterator<Item = String> {
    HOST_FIGURES.iter().map(|figure| format!("host_{}", figure.key))
}

/// Returns the cells of a host sample, without the time.
fn host_cells(sample: &HostSample) -> impl Iterator<Item = String> {
    HOST_FIGURES.iter().map(|figure| number((figure.of)(sample)))
}

fn line(cells: impl IntoIterator<Item = String>) -> String {
    let mut line = cells.into_iter().collect::<Vec<_>>().join(",");
    line.push('\n');
    line
}

/// Formats a figure with three digits after the point at most: figures of samples are no more exact.
fn number(figure: Option<f64>) -> String {
    figure.map(|figure| ((figure * 1e3).round() / 1e3).to_string()).unwrap_or_default()
}

/// First letters of formulas, as narrow and as wide forms, and those that some programs skip.
const FORMULA: [char; 11] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}', '\t', '\r', '\n'];

/// Quotes text that needs quotes. An apostrophe keeps spreadsheets from taking it for a formula.
fn quoted(text: &str) -> String {
    let text = &*for_file(text);
    let text = if text.starts_with(FORMULA) { &format!("'{text}") } else { text };
    if text.contains([',', ';', '\t', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
