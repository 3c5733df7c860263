//! The Prometheus text format (version 0.0.4): one table of metrics and one writer.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use gpu_tuned_core::printable::for_file;

use crate::metrics::{Figure, HOST_FIGURES, THROTTLES, gpu_figures, phases};
use crate::monitor::{Gathering, Latest, Summary};
use crate::recording::{Gpu, GpuSample, Record, Run, StepRecord, belongs_to, last_run, set_back};

/// Values of metrics by their labels. Prints as the text format.
#[derive(Debug, Default)]
struct Exposition(BTreeMap<&'static str, BTreeMap<Vec<String>, f64>>);

impl Exposition {
    fn value(&mut self, metric: &'static str, labels: &[&str]) -> &mut f64 {
        // Values that look alike are one.
        let labels = labels.iter().map(|&value| for_file(value).into_owned()).collect();
        self.0.entry(metric).or_default().entry(labels).or_default()
    }

    /// Sets a gauge, unless there is no value. The labels' values come in the order of the table.
    fn set(&mut self, metric: &'static str, labels: &[&str], value: Option<f64>) {
        if let Some(value) = value {
            *self.value(metric, labels) = value;
        }
    }

    fn add(&mut self, metric: &'static str, labels: &[&str], amount: f64) {
        *self.value(metric, labels) += amount;
    }
}

impl fmt::Display for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for metric in metrics() {
            let Some(values) = self.0.get(metric.name) else { continue };
            let (name, kind) = (metric.name, metric.kind());
            writeln!(f, "# HELP {name} {}\n# TYPE {name} {kind}", escaped(metric.help))?;
            for (labels, value) in values {
                writeln!(f, "{name}{} {}", labelled(metric.labels, labels), number(*value))?;
            }
        }
        Ok(())
    }
}

/// Formats labels. An empty value is left out: to Prometheus it is the same as no label.
fn labelled(names: &[&str], values: &[String]) -> String {
    let mut text = String::new();
    for (name, value) in names.iter().zip(values).filter(|(_, value)| !value.is_empty()) {
        let separator = if text.is_empty() { '{' } else { ',' };
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{name}=\"{}\"", escaped(value).replace('"', "\\\""));
    }
    if text.is_empty() { text } else { text + "}" }
}

fn escaped(text: &str) -> String {
    for_file(text).replace('\\', "\\\\").replace('\n', "\\n")
}

/// Formats a number; the format spells infinity with a sign.
fn number(value: f64) -> String {
    if value.is_infinite() { format!("{}Inf", if value > 0.0 { '+' } else { '-' }) } else { value.to_string() }
}

impl Exposition {
    fn run(&mut self, run: &Run) {
        let target = run.target.as_deref().unwrap_or("none");
        self.set("gpu_tuned_run_info", &[&run.workload, target, &run.device.name], Some(1.0));
        self.set("gpu_tuned_memory_planned_bytes", &[], run.memory_planned_bytes.map(|bytes| bytes as f64));
    }

    /// Counts a step; gauges are those of the last one.
    fn step(&mut self, step: &StepRecord) {
        let rank: &[&str] = &[&step.rank.to_string()];
        self.add("gpu_tuned_steps_total", rank, 1.0);
        self.add("gpu_tuned_steps_seconds_total", rank, step.seconds);
        self.add("gpu_tuned_rescues_total", rank, step.rescues as f64);
        if step.rank == 0 {
            self.add("gpu_tuned_samples_total", &[], step.samples as f64);
        }
        for (_, key, seconds) in phases(step) {
            if let Some(seconds) = seconds {
                let phase = key.trim_end_matches("_s");
                self.add("gpu_tuned_step_phase_seconds_total", &[phase, rank[0]], seconds);
            }
        }
        self.set("gpu_tuned_loss", rank, step.loss);
        self.set("gpu_tuned_gradient_norm", rank, step.gradient_norm);
        self.set("gpu_tuned_pool_in_use_bytes", rank, step.in_use_bytes.map(|bytes| bytes as f64));
        self.set("gpu_tuned_pool_reserved_bytes", rank, step.reserved_bytes.map(|bytes| bytes as f64));
    }

    /// Adds the last sample of a GPU, with its description where a monitor recorded one, and its energy in joules.
    fn gpu(&mut self, sample: &GpuSample, gpu: Option<&Gpu>, energy_j: Option<f64>) {
        let (number, slot) = (sample.gpu.to_string(), sample.mig_slot.map(|slot| slot.to_string()));
        let uuid = gpu.and_then(|gpu| gpu.uuid.as_deref()).unwrap_or_default();
        let [number, slot] = [&*number, slot.as_deref().unwrap_or_default()];
        let labels: &[&str] = &[number, uuid, slot];
        self.set("gpu_tuned_gpu_up", labels, Some(flag(sample.trouble.is_none())));
        let memory = gpu.and_then(|gpu| gpu.memory_total_bytes);
        self.set("gpu_tuned_gpu_memory_bytes", labels, memory.map(|bytes| bytes as f64));
        self.set("gpu_tuned_gpu_energy_joules_total", labels, energy_j);
        self.figures(gpu_figures(), labels, sample);
        // The driver reports reasons for whole GPUs only.
        if sample.mig_slot.is_none() && sample.trouble.is_none() {
            for (reason, key, _) in THROTTLES {
                let labels = [number, uuid, slot, key];
                self.set("gpu_tuned_gpu_throttled", &labels, Some(flag(sample.throttle.contains(&reason))));
            }
        }
    }

    fn figures<S: 'static>(&mut self, figures: impl Iterator<Item = &'static Figure<S>>, labels: &[&str], sample: &S) {
        for figure in figures {
            self.set(figure.metric, labels, (figure.of)(sample).map(|value| value * figure.scale));
        }
    }
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

/// A metric.
#[derive(Clone, Copy, Debug)]
struct Metric {
    pub name: &'static str,
    pub help: &'static str,
    /// Names of the labels, in the order of their values.
    pub labels: &'static [&'static str],
}

impl Metric {
    const fn new(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, help, labels }
    }

    fn kind(&self) -> &'static str {
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

fn metrics() -> impl Iterator<Item = Metric> {
    let gpu = gpu_figures().map(|figure| from_figure(figure, GPU));
    let host = HOST_FIGURES.iter().map(|figure| from_figure(figure, NONE));
    OTHERS.into_iter().chain(gpu).chain(host)
}

fn from_figure<S>(figure: &Figure<S>, labels: &'static [&'static str]) -> Metric {
    Metric::new(figure.metric, labels, figure.about)
}

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

fn expose(exposition: &mut Exposition, latest: &Latest, summary: &Summary) {
    for sample in &latest.gpus {
        let key = (sample.gpu, sample.mig_slot);
        let gpu = latest.start.gpu(sample.gpu, sample.mig_slot);
        let energy = summary.gpus.iter().find(|summary| (summary.gpu.gpu, summary.gpu.mig_slot) == key);
        exposition.gpu(sample, gpu, energy.and_then(|summary| summary.energy_j));
    }
    if let Some(host) = &latest.host {
        exposition.figures(HOST_FIGURES.iter(), &[], host);
    }
    for value in latest.values.values() {
        exposition.set("gpu_tuned_value", &[&value.name], Some(value.value));
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::metrics;

    /// Base units of <https://prometheus.io/docs/practices/naming>, and of other exporters.
    const UNITS: [&str; 9] =
        ["bytes", "bytes_per_second", "seconds", "ratio", "watts", "hertz", "celsius", "joules", "cores"];
    /// Metrics that count or number something, are 0 or 1, or have a unit of the program's own.
    const WITHOUT: [&str; 12] = [
        "run_info",
        "steps_total",
        "rescues_total",
        "samples_total",
        "loss",
        "gradient_norm",
        "gpu_up",
        "gpu_throttled",
        "gpu_performance_state",
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
