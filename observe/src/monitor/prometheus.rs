//! The last samples in Prometheus' text format.

use super::state::Latest;
use super::summary::Summary;
use crate::metrics::prometheus::Exposition;

/// Formats the last samples in Prometheus' text format (version 0.0.4), to be served or left for the node exporter's
/// textfile collector. Energy is summed over the run.
///
/// Units are base units and part of the names. GPUs have the labels `gpu`, the driver's number, and `uuid`; MIG slices have
/// `mig_slot` as well. `export::prometheus` has the same metrics and labels.
pub fn to_prometheus(latest: &Latest, summary: &Summary) -> String {
    let mut exposition = Exposition::default();
    expose(&mut exposition, latest, summary);
    exposition.to_string()
}

/// Adds the last samples.
pub(crate) fn expose(exposition: &mut Exposition, latest: &Latest, summary: &Summary) {
    for sample in &latest.gpus {
        let key = (sample.gpu, sample.mig_slot);
        let gpu = latest.start.gpus.iter().find(|gpu| (gpu.gpu, gpu.mig_slot) == key);
        let energy = summary.gpus.iter().find(|summary| (summary.gpu.gpu, summary.gpu.mig_slot) == key);
        exposition.gpu(sample, gpu, energy.and_then(|summary| summary.energy_j));
    }
    if let Some(host) = &latest.host {
        exposition.host(host);
    }
    latest.values.values().for_each(|value| exposition.program_value(value));
}
