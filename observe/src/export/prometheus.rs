//! Prometheus text.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::recording::{GpuSample, HostSample, Record, Run, StepRecord};

use super::figures::{gpu, phases};
use crate::recording::{belongs_to, last_run};

/// What a recording says in the end, in Prometheus' text format (version 0.0.4), in its base units: counters of what the run
/// has done that began last, and gauges of what was seen last. There are no times in it, as collectors of text files
/// want it.
pub fn prometheus(records: &[Record]) -> String {
    let last = last_run(records);
    let begin = last.map_or(f64::NEG_INFINITY, |run| run.at);
    let mut metrics = Metrics::default();
    if let Some(run) = last {
        metrics.run(run);
    }
    for record in records {
        match record {
            Record::Step(step) if belongs_to(last, step) => metrics.step(step),
            Record::Value(value) if value.at >= begin => {
                metrics.gauge("value", "Figures of the program's own.", &[("name", &value.name)], Some(value.value));
            }
            Record::Gpu(sample) => metrics.gpu(sample),
            Record::Host(sample) => metrics.host(sample),
            _ => {}
        }
    }
    metrics.text()
}

/// A kind of metric, and the values that it has by their labels.
struct Family {
    help: &'static str,
    kind: &'static str,
    values: BTreeMap<String, f64>,
}

#[derive(Default)]
struct Metrics(BTreeMap<&'static str, Family>);

impl Metrics {
    fn value(
        &mut self,
        name: &'static str,
        kind: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
    ) -> &mut f64 {
        let family = self.0.entry(name).or_insert(Family { help, kind, values: BTreeMap::new() });
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        family.values.entry(labels.join(",")).or_default()
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: Option<f64>) {
        if let Some(value) = value {
            *self.value(name, "gauge", help, labels) = value;
        }
    }

    fn count(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], by: f64) {
        *self.value(name, "counter", help, labels) += by;
    }

    fn run(&mut self, run: &Run) {
        let target = run.target.as_deref().unwrap_or("none");
        let labels = [("workload", &*run.workload), ("target", target), ("device", &*run.device.name)];
        self.gauge("run_info", "The training program, always 1.", &labels, Some(1.0));
        let planned = run.memory_planned_bytes.map(|bytes| bytes as f64);
        self.gauge("memory_planned_bytes", "Memory that the plan predicts.", &[], planned);
    }

    fn step(&mut self, step: &StepRecord) {
        let rank = step.rank.to_string();
        let rank = [("rank", &*rank)];
        self.count("steps_total", "Optimizer steps.", &rank, 1.0);
        self.count("steps_seconds_total", "Time that optimizer steps took, from end to end.", &rank, step.seconds);
        self.count("rescues_total", "How often memory ran out in a step.", &rank, step.rescues as f64);
        if step.rank == 0 {
            self.count("samples_total", "Samples that all ranks have trained on.", &[], step.samples as f64);
        }
        for (name, seconds) in phases(step) {
            let labels = [("phase", name.trim_end_matches("_s")), rank[0]];
            if let Some(seconds) = seconds {
                self.count("step_phase_seconds_total", "Where the host's time in steps went.", &labels, seconds);
            }
        }
        self.gauge("loss", "Mean loss of the last step.", &rank, step.loss);
        self.gauge("gradient_norm", "Norm of all gradients of the last step.", &rank, step.gradient_norm);
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        self.gauge("pool_in_use_bytes", "Memory in use by Burn's pools.", &rank, bytes(step.in_use_bytes));
        self.gauge("pool_reserved_bytes", "Memory that Burn's pools hold.", &rank, bytes(step.reserved_bytes));
    }

    fn gpu(&mut self, sample: &GpuSample) {
        let gpu = gpu(sample);
        let ratio = |percent: Option<f64>| percent.map(|percent| percent / 100.0);
        let scaled = |count: Option<u32>, by: f64| count.map(|count| f64::from(count) * by);
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        let mut gauge = |name, help, value| self.gauge(name, help, &[("gpu", &gpu)], value);
        gauge("gpu_utilisation_ratio", "Time in which a kernel ran.", ratio(sample.utilisation_percent));
        gauge("gpu_sm_activity_ratio", "Share of the multiprocessors that work.", ratio(sample.sm_activity_percent));
        gauge("gpu_dram_activity_ratio", "Share of the memory's bandwidth.", ratio(sample.dram_activity_percent));
        gauge("gpu_memory_used_bytes", "Memory that processes hold.", bytes(sample.memory_used_bytes));
        gauge("gpu_power_watts", "Power that is drawn.", scaled(sample.power_mw, 1e-3));
        gauge("gpu_power_limit_watts", "Power that may be drawn.", scaled(sample.power_limit_mw, 1e-3));
        gauge("gpu_sm_clock_hertz", "Clock of the multiprocessors.", scaled(sample.sm_clock_mhz, 1e6));
        gauge("gpu_memory_clock_hertz", "Clock of the memory.", scaled(sample.memory_clock_mhz, 1e6));
        gauge("gpu_temperature_celsius", "Temperature.", scaled(sample.temperature_c, 1.0));
    }

    fn host(&mut self, sample: &HostSample) {
        let ratio = sample.cpu_percent.map(|percent| percent / 100.0);
        self.gauge("host_cpu_ratio", "Time in which the host's processors worked.", &[], ratio);
        let used = sample.memory_used_bytes.map(|bytes| bytes as f64);
        self.gauge("host_memory_used_bytes", "Memory of the host that is used.", &[], used);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, Family { help, kind, values }) in &self.0 {
            // Writing to a string does not fail.
            let _ = writeln!(text, "# HELP gpu_tuned_{name} {help}\n# TYPE gpu_tuned_{name} {kind}");
            for (labels, value) in values {
                let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
                let _ = writeln!(text, "gpu_tuned_{name}{labels} {}", number(*value));
            }
        }
        text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// As Go reads it.
fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        value if value.is_infinite() => if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use crate::recording::{GpuSample, Record, Run, StepRecord, Value};

    use super::prometheus;

    #[test]
    fn it_counts_what_the_last_run_has_done_and_shows_what_was_seen_last() {
        let step = |number: u64| {
            let mut step = StepRecord::new(10.0 * number as f64, number);
            (step.seconds, step.samples, step.loss, step.loss_s) = (0.5, 32, Some(1.0 / number as f64), Some(0.25));
            Record::Step(Box::new(step))
        };
        let mut others = StepRecord::new(12.0, 5);
        (others.samples, others.pid) = (32, Some(2));
        let earlier = Run::new(2.0, 3);
        let mut run = Run::new(10.0, 1);
        (run.workload, run.target) = ("digits".to_owned(), Some("h200".to_owned()));
        run.device.name = "a \"GPU\"".to_owned();
        let mut sample = GpuSample::new(3.0, 0);
        (sample.utilisation_percent, sample.power_mw) = (Some(97.0), Some(412_500));
        let records = [
            step(1),
            Record::Run(Box::new(run)),
            Record::Step(Box::new(others)),
            step(2),
            Record::Run(Box::new(earlier)),
            Record::Gpu(sample),
            Record::Value(Value::new(20.0, "valid/loss", f64::NAN)),
        ];
        let text = "\
# HELP gpu_tuned_gpu_power_watts Power that is drawn.
# TYPE gpu_tuned_gpu_power_watts gauge
gpu_tuned_gpu_power_watts{gpu=\"0\"} 412.5
# HELP gpu_tuned_gpu_utilisation_ratio Time in which a kernel ran.
# TYPE gpu_tuned_gpu_utilisation_ratio gauge
gpu_tuned_gpu_utilisation_ratio{gpu=\"0\"} 0.97
# HELP gpu_tuned_loss Mean loss of the last step.
# TYPE gpu_tuned_loss gauge
gpu_tuned_loss{rank=\"0\"} 0.5
# HELP gpu_tuned_rescues_total How often memory ran out in a step.
# TYPE gpu_tuned_rescues_total counter
gpu_tuned_rescues_total{rank=\"0\"} 0
# HELP gpu_tuned_run_info The training program, always 1.
# TYPE gpu_tuned_run_info gauge
gpu_tuned_run_info{workload=\"digits\",target=\"h200\",device=\"a \\\"GPU\\\"\"} 1
# HELP gpu_tuned_samples_total Samples that all ranks have trained on.
# TYPE gpu_tuned_samples_total counter
gpu_tuned_samples_total 64
# HELP gpu_tuned_step_phase_seconds_total Where the host's time in steps went.
# TYPE gpu_tuned_step_phase_seconds_total counter
gpu_tuned_step_phase_seconds_total{phase=\"loss\",rank=\"0\"} 0.5
# HELP gpu_tuned_steps_seconds_total Time that optimizer steps took, from end to end.
# TYPE gpu_tuned_steps_seconds_total counter
gpu_tuned_steps_seconds_total{rank=\"0\"} 1
# HELP gpu_tuned_steps_total Optimizer steps.
# TYPE gpu_tuned_steps_total counter
gpu_tuned_steps_total{rank=\"0\"} 2
# HELP gpu_tuned_value Figures of the program's own.
# TYPE gpu_tuned_value gauge
gpu_tuned_value{name=\"valid/loss\"} NaN
";
        assert_eq!(prometheus(&records), text);
    }
}
