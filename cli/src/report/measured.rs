//! Measurements of a workload.

use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredOn, Mode};
use gpu_tuned_core::{grouped, three_digits};
use maud::html;

use super::page::{Section, table};
use crate::project::Described;
use crate::view::method;

const COLUMNS: [&str; 9] =
    ["mode", ">batch", ">reserved", ">in use", ">micro-step, ms", ">optimizer, ms", ">samples/s", ">spread", "~method"];

/// The measurements of a workload; `None` where there are none.
pub(super) fn section(described: &Described<'_>) -> Option<Section> {
    let workload = described.workload();
    let measured: &Measured = &workload.measured;
    if measured.on.is_empty() {
        return None;
    }
    let body = html! {
        @for (name, on) in &measured.on {
            h3 { (name) }
            p { (device(on)) }
            (table(&COLUMNS, &rows(on)))
        }
    };
    Some(Section { heading: format!("{}: measurements", described.name), body })
}

fn device(on: &MeasuredOn) -> String {
    let driver = on.driver.as_ref().map(|driver| format!(", driver {driver}")).unwrap_or_default();
    let cubecl = on.cubecl.as_ref().map(|cubecl| format!(", CubeCL {cubecl}")).unwrap_or_default();
    format!("{}, {}{driver}, Burn {}{cubecl}", on.device, on.memory_bytes, on.burn)
}

fn rows(on: &MeasuredOn) -> Vec<Vec<String>> {
    let of_mode = on.mode.iter().flat_map(|(mode, points)| {
        let method = method(points.method);
        points.batch.iter().map(move |(batch, point)| cells(*mode, *batch, point, method))
    });
    of_mode.collect()
}

fn cells(mode: Mode, batch: u64, point: &MeasuredBatch, method: &str) -> Vec<String> {
    let cell = |figure: Option<String>| figure.unwrap_or_default();
    let ms = |figure: Option<f64>| cell(figure.map(|ms| format!("{ms:.2}")));
    let seconds = point.micro_step_ms.map(|micro_step| (micro_step + point.optimizer_ms.unwrap_or(0.0)) / 1e3);
    vec![
        mode.to_string(),
        grouped(batch),
        cell(point.reserved_bytes.map(|bytes| bytes.to_string())),
        cell(point.in_use_bytes.map(|bytes| bytes.to_string())),
        ms(point.micro_step_ms),
        ms(point.optimizer_ms),
        cell(seconds.map(|seconds| three_digits(batch as f64 / seconds))),
        cell(point.spread.map(|spread| format!("{:.1}%", spread * 100.0))),
        method.to_owned(),
    ]
}
