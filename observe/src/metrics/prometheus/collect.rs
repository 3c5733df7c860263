//! Metrics of records.

use super::Exposition;
use crate::metrics::{Figure, HOST_FIGURES, REASONS, gpu_figures, phases, throttle_key};
use crate::recording::{Gpu, GpuSample, HostSample, Run, StepRecord, Value};

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
