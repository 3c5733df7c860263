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
