//! Picture of throughput over memory.

use std::collections::BTreeMap;

use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::three_digits;
use gpu_tuned_observe::plot::{Limit, MemorySpeedPlot, ModeLine, Point, Ring};

use super::found::{Found, Row, coordinates};

/// Throughput over memory, a line for each mode.
pub(super) fn figure(found: &Found) -> MemorySpeedPlot {
    let header = &found.header;
    let mut lines: BTreeMap<Mode, Vec<Point>> = BTreeMap::new();
    for (row, figures) in found.alone() {
        if let Some((memory, samples_per_s)) = coordinates(row) {
            let interval = Some((figures.samples_per_s.least, figures.samples_per_s.most));
            let point = Point { batch: row.setup.batch, memory, samples_per_s, interval };
            lines.entry(row.mode()).or_default().push(point);
        }
    }
    let mut frontier: Vec<_> = found.rows.iter().filter(|row| row.frontier).filter_map(coordinates).collect();
    frontier.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let is_gpu = header.kind == DeviceKind::Gpu;
    let limit = Limit { memory: header.memory_bytes, label: format!("{:.0}", header.memory_bytes.gib()) };
    let rings: Vec<_> = found.rows.iter().filter(|row| row.planned).filter_map(ring).collect();
    MemorySpeedPlot {
        title: format!("{} on {}", header.workload, header.device),
        note: if is_gpu { "dotted: the GPU's memory; grey: the frontier" } else { "grey: the frontier" }.to_owned(),
        lines: lines.into_iter().map(|(mode, points)| ModeLine { mode, points }).collect(),
        limits: if is_gpu { vec![limit] } else { Vec::new() },
        ringed: if rings.is_empty() { String::new() } else { "planned".to_owned() },
        rings,
        frontier,
    }
}

fn ring(row: &Row) -> Option<Ring> {
    let (memory, samples_per_s) = coordinates(row)?;
    let title = format!("planned: {}, {} samples/s", row.name(), three_digits(samples_per_s));
    Some(Ring { memory, samples_per_s, until: Vec::new(), title })
}
