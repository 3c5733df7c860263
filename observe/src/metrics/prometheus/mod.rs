//! The Prometheus text format (version 0.0.4): one table of metrics and one writer.

mod table;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use gpu_tuned_core::printable::for_file;

use crate::metrics::{Figure, HOST_FIGURES, REASONS, gpu_figures, phases, throttle_key};
use crate::recording::{Gpu, GpuSample, HostSample, Run, StepRecord, Value};
use table::metrics;

/// Values of metrics by their labels. Prints as the text format.
#[derive(Debug, Default)]
pub(crate) struct Exposition(BTreeMap<&'static str, BTreeMap<Vec<String>, f64>>);

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

    /// Adds to a counter.
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
    pub(crate) fn run(&mut self, run: &Run) {
        let target = run.target.as_deref().unwrap_or("none");
        self.set("gpu_tuned_run_info", &[&run.workload, target, &run.device.name], Some(1.0));
        self.set("gpu_tuned_memory_planned_bytes", &[], run.memory_planned_bytes.map(|bytes| bytes as f64));
    }

    /// Counts a step; gauges are those of the last one.
    pub(crate) fn step(&mut self, step: &StepRecord) {
        let rank: &[&str] = &[&step.rank.to_string()];
        self.add("gpu_tuned_steps_total", rank, 1.0);
        self.add("gpu_tuned_steps_seconds_total", rank, step.seconds);
        self.add("gpu_tuned_rescues_total", rank, step.rescues as f64);
        if step.rank == 0 {
            self.add("gpu_tuned_samples_total", &[], step.samples as f64);
        }
        for (key, seconds) in phases(step) {
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
    pub(crate) fn gpu(&mut self, sample: &GpuSample, gpu: Option<&Gpu>, energy_j: Option<f64>) {
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
            for reason in REASONS {
                let labels = [number, uuid, slot, throttle_key(reason)];
                self.set("gpu_tuned_gpu_throttled", &labels, Some(flag(sample.throttle.contains(&reason))));
            }
        }
    }

    pub(crate) fn host(&mut self, sample: &HostSample) {
        self.figures(HOST_FIGURES.iter(), &[], sample);
    }

    pub(crate) fn program_value(&mut self, value: &Value) {
        self.set("gpu_tuned_value", &[&value.name], Some(value.value));
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
