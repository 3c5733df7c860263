//! The table of metrics. Names end in the base unit, those of counters in `_total`.

use crate::metrics::{Figure, HOST_FIGURES, gpu_figures};

/// A metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric {
    pub name: &'static str,
    pub help: &'static str,
    /// Names of the labels, in the order of their values.
    pub labels: &'static [&'static str],
}

impl Metric {
    const fn new(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, help, labels }
    }

    pub(super) fn kind(&self) -> &'static str {
        if self.name.ends_with("_total") { "counter" } else { "gauge" }
    }
}

/// Labels of a GPU: the driver's number, its UUID, and the slot of a MIG slice.
const GPU: &[&str] = &["gpu", "uuid", "mig_slot"];
const RANK: &[&str] = &["rank"];
const NONE: &[&str] = &[];

/// Metrics that are not figures of samples.
static OTHERS: [Metric; 16] = [
    Metric::new("gpu_tuned_run_info", &["workload", "target", "device"], "The training program, always 1"),
    Metric::new("gpu_tuned_memory_planned_bytes", NONE, "Memory that the plan predicts"),
    Metric::new("gpu_tuned_steps_total", RANK, "Optimizer steps"),
    Metric::new("gpu_tuned_steps_seconds_total", RANK, "Time of optimizer steps, from end to end"),
    Metric::new(
        "gpu_tuned_step_phase_seconds_total",
        &["phase", "rank"],
        "Time of the phases of optimizer steps, by the host's clock",
    ),
    Metric::new("gpu_tuned_rescues_total", RANK, "Times that a step ran out of memory and recovered"),
    Metric::new("gpu_tuned_samples_total", NONE, "Samples that all ranks trained on"),
    Metric::new("gpu_tuned_loss", RANK, "Mean loss of the last step"),
    Metric::new("gpu_tuned_gradient_norm", RANK, "Norm of all gradients of the last step"),
    Metric::new("gpu_tuned_pool_in_use_bytes", RANK, "Memory in use in Burn's pools"),
    Metric::new("gpu_tuned_pool_reserved_bytes", RANK, "Memory reserved by Burn's pools"),
    Metric::new("gpu_tuned_gpu_up", GPU, "1 if the driver answers for the GPU, else 0"),
    Metric::new("gpu_tuned_gpu_memory_bytes", GPU, "Memory of the GPU"),
    Metric::new(
        "gpu_tuned_gpu_throttled",
        &["gpu", "uuid", "mig_slot", "reason"],
        "1 if the reason lowers the clocks, else 0",
    ),
    Metric::new("gpu_tuned_gpu_energy_joules_total", GPU, "Energy since monitoring began"),
    Metric::new("gpu_tuned_value", &["name"], "A value that the program recorded"),
];

/// Returns all metrics.
pub(super) fn metrics() -> impl Iterator<Item = Metric> {
    let gpu = gpu_figures().map(|figure| from_figure(figure, GPU));
    let host = HOST_FIGURES.iter().map(|figure| from_figure(figure, NONE));
    OTHERS.into_iter().chain(gpu).chain(host)
}

fn from_figure<S>(figure: &Figure<S>, labels: &'static [&'static str]) -> Metric {
    Metric::new(figure.metric, labels, figure.about)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::metrics;

    /// Base units of <https://prometheus.io/docs/practices/naming>, and of other exporters.
    const UNITS: [&str; 9] =
        ["bytes", "bytes_per_second", "seconds", "ratio", "watts", "hertz", "celsius", "joules", "cores"];
    /// Metrics that count or number something, are 0 or 1, or have a unit of the program's own.
    const WITHOUT: [&str; 11] = [
        "run_info",
        "steps_total",
        "rescues_total",
        "samples_total",
        "loss",
        "gradient_norm",
        "gpu_up",
        "gpu_throttled",
        "gpu_pcie_generation",
        "gpu_pcie_lanes",
        "value",
    ];

    #[test]
    fn names_are_unique_and_end_in_a_base_unit() {
        let mut names = BTreeSet::new();
        for metric in metrics() {
            let name = metric.name.strip_prefix("gpu_tuned_").expect("a prefix");
            assert!(names.insert(name), "{name} is there twice");
            let has_unit = UNITS.iter().any(|unit| name.trim_end_matches("_total").ends_with(&format!("_{unit}")));
            assert!(has_unit != WITHOUT.contains(&name), "{name}");
            assert!(!metric.help.is_empty() && !metric.help.ends_with('.'), "{name}");
        }
    }
}
