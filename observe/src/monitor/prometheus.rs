//! The text format of Prometheus: what was seen last, to be served or left for its node exporter's text collector.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::recording::{GpuSample, Throttle};

use super::figure::{GPU_FIGURES, HOST_FIGURES};
use super::state::Latest;
use super::summary::Summary;
use super::text::key;

/// Reasons for lower clocks that are told whether they hold or not.
const REASONS: [Throttle; 6] = [
    Throttle::PowerCap,
    Throttle::PowerBrake,
    Throttle::ThermalSoftware,
    Throttle::ThermalHardware,
    Throttle::Hardware,
    Throttle::SyncBoost,
];

/// What was seen last as Prometheus reads it (version 0.0.4 of its text format); energy is added up over the run.
///
/// Units are base units and part of the names. GPUs have the labels `gpu`, the driver's number, and `uuid`, slices `mig_slot`
/// besides.
pub fn to_prometheus(latest: &Latest, summary: &Summary) -> String {
    let mut text = String::new();
    let labels: BTreeMap<_, _> =
        latest.gpus.iter().map(|gpu| ((gpu.gpu, gpu.mig_slot), labels_of(latest, gpu))).collect();
    let of = |gpu: &GpuSample| labels[&(gpu.gpu, gpu.mig_slot)].as_str();
    let mut metric = |name: &str, kind: &str, about: &str, lines: Vec<(String, f64)>| {
        if lines.is_empty() {
            return;
        }
        let _ = write!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n", escaped(about, false));
        for (labels, value) in lines {
            let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
            let _ = writeln!(text, "{name}{labels} {}", number(value));
        }
    };
    let up = latest.gpus.iter().map(|gpu| (of(gpu).to_owned(), f64::from(u8::from(gpu.trouble.is_none())))).collect();
    metric("gpu_tuned_gpu_up", "gauge", "Whether the GPU can be asked", up);
    for figure in &GPU_FIGURES {
        let value = |gpu: &GpuSample| Some((of(gpu).to_owned(), (figure.of)(gpu)? * figure.scale));
        metric(figure.metric, "gauge", figure.about, latest.gpus.iter().filter_map(value).collect());
    }
    let limit = |gpu: &GpuSample| Some((of(gpu).to_owned(), f64::from(gpu.power_limit_mw?) / 1e3));
    let limits = latest.gpus.iter().filter_map(limit).collect();
    metric("gpu_tuned_gpu_power_limit_watts", "gauge", "The power limit in force", limits);
    let total = latest.start.gpus.iter().filter_map(|gpu| {
        let labels = labels.get(&(gpu.gpu, gpu.mig_slot))?;
        Some((labels.clone(), gpu.memory_total_bytes? as f64))
    });
    metric("gpu_tuned_gpu_memory_bytes", "gauge", "All memory", total.collect());
    let whole = latest.gpus.iter().filter(|gpu| gpu.mig_slot.is_none() && gpu.trouble.is_none());
    let throttled = whole.flat_map(|gpu| {
        REASONS.map(|reason| {
            let holds = f64::from(u8::from(gpu.throttle.contains(&reason)));
            (format!("{},reason=\"{}\"", of(gpu), key(reason)), holds)
        })
    });
    metric("gpu_tuned_gpu_throttled", "gauge", "Whether something holds the clocks down", throttled.collect());
    let energy = summary.gpus.iter().filter_map(|gpu| {
        let labels = labels.get(&(gpu.gpu.gpu, gpu.gpu.mig_slot))?;
        Some((labels.clone(), gpu.energy_j?))
    });
    metric("gpu_tuned_gpu_energy_joules_total", "counter", "Energy since watching began", energy.collect());
    for figure in &HOST_FIGURES {
        let value = latest.host.as_ref().and_then(figure.of).map(|value| (String::new(), value * figure.scale));
        metric(figure.metric, "gauge", figure.about, value.into_iter().collect());
    }
    let values = latest.values.values().map(|value| (format!("name=\"{}\"", escaped(&value.name, true)), value.value));
    metric("gpu_tuned_value", "gauge", "A figure that the program named", values.collect());
    text
}

fn labels_of(latest: &Latest, gpu: &GpuSample) -> String {
    let known = latest.start.gpus.iter().find(|known| (known.gpu, known.mig_slot) == (gpu.gpu, gpu.mig_slot));
    let uuid = known.and_then(|known| known.uuid.as_deref()).unwrap_or_default();
    let slot = gpu.mig_slot.map(|slot| format!(",mig_slot=\"{slot}\"")).unwrap_or_default();
    format!("gpu=\"{}\",uuid=\"{}\"{slot}", gpu.gpu, escaped(uuid, true))
}

/// Text as the format has it: in labels, quotes are escaped, too.
fn escaped(text: &str, is_label: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if is_label { text.replace('"', "\\\"") } else { text }
}

/// As the format spells what is no number.
fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}
