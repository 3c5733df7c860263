//! Statistics of the run's GPUs during the judged steps.

use std::collections::BTreeMap;

use gpu_tuned_core::profile::ProfileTable;

use crate::recording::{Gpu, GpuProcess, GpuSample, Run, Start, Throttle};

use crate::stats::{mean, median};

/// Samples that statistics need.
pub(in super::super) const MIN_SAMPLES: usize = 5;
/// Utilization in percent of a GPU under load.
const LOADED_PERCENT: f64 = 50.0;

/// A GPU during the judged time.
#[derive(Clone, Debug)]
pub(in super::super) struct GpuStats<'a> {
    pub gpu: Gpu,
    pub samples: Vec<&'a GpuSample>,
    /// Samples between the last earlier training and the run's begin.
    pub before: Vec<&'a GpuSample>,
}

impl GpuStats<'_> {
    /// Returns true if the GPU shares the host's memory, by the recording or by the GPU's profile.
    pub(in super::super) fn has_unified_memory(&self) -> bool {
        let profile = || ProfileTable::builtin_profile(self.gpu.profile.as_deref()?);
        self.gpu.unified_memory || profile().is_some_and(|profile| profile.compute_capability.is_integrated())
    }

    /// Returns the mean of a figure.
    pub(in super::super) fn mean(&self, figure: impl Fn(&GpuSample) -> Option<f64>) -> Option<f64> {
        mean(self.samples.iter().filter_map(|sample| figure(sample)))
    }

    /// Part of the time in which a kernel ran.
    pub(in super::super) fn busy(&self) -> Option<f64> {
        self.mean(|sample| sample.utilisation_percent).map(|percent| percent / 100.0)
    }

    /// Part of the SMs that worked.
    pub(in super::super) fn sm_activity(&self) -> Option<f64> {
        self.mean(|sample| sample.sm_activity_percent).map(|percent| percent / 100.0)
    }

    /// Part of the samples in which one of these reasons lowered the clocks.
    pub(in super::super) fn throttled(&self, reasons: &[Throttle]) -> f64 {
        let lowered = |sample: &&&GpuSample| sample.throttle.iter().any(|reason| reasons.contains(reason));
        self.samples.iter().filter(lowered).count() as f64 / self.samples.len() as f64
    }

    /// Samples under load, and those without a known load.
    pub(in super::super) fn loaded(&self) -> impl Iterator<Item = &GpuSample> {
        let is_loaded =
            |sample: &&GpuSample| sample.utilisation_percent.is_none_or(|percent| percent >= LOADED_PERCENT);
        self.samples.iter().copied().filter(is_loaded)
    }

    /// Median SM clocks in MHz: while these reasons lowered it, and while no reason did.
    pub(in super::super) fn clocks(&self, reasons: &[Throttle]) -> (Option<f64>, Option<f64>) {
        let clock = |is_lowered: bool| {
            let is_meant = move |sample: &&GpuSample| {
                if is_lowered {
                    sample.throttle.iter().any(|it| reasons.contains(it))
                } else {
                    sample.throttle.is_empty()
                }
            };
            let of_kind = self.loaded().filter(is_meant);
            median(of_kind.filter_map(|sample| sample.sm_clock_mhz).map(f64::from))
        };
        (clock(true), clock(false))
    }

    /// Processes of the last sample that lists them.
    pub(in super::super) fn processes(&self) -> Option<&[GpuProcess]> {
        self.samples.iter().rev().find_map(|sample| sample.processes.as_deref())
    }

    /// Name in a sentence.
    pub(in super::super) fn name(&self) -> String {
        match &self.gpu.name {
            Some(name) => format!("GPU {} ({name})", self.gpu.gpu),
            None => format!("GPU {}", self.gpu.gpu),
        }
    }
}

/// Returns the run's GPUs: those that the run names, else those that list its process, else the busiest.
pub(super) fn of_run<'a>(
    start: Option<&Start>,
    run: Option<&Run>,
    pid: Option<u32>,
    samples: &[&'a GpuSample],
    span: (f64, f64),
    idle: (f64, f64),
) -> Vec<GpuStats<'a>> {
    let mut groups: BTreeMap<_, (Vec<_>, Vec<_>)> = BTreeMap::new();
    for &sample in samples.iter().filter(|sample| sample.trouble.is_none()) {
        let (within, before) = groups.entry((sample.gpu, sample.mig_slot)).or_default();
        within.extend((span.0..=span.1).contains(&sample.at).then_some(sample));
        before.extend((idle.0 < sample.at && sample.at < idle.1).then_some(sample));
    }
    groups.retain(|_, (within, _)| within.len() >= MIN_SAMPLES);
    let gpu_stats = |(key, (samples, before)): ((u32, Option<u32>), _)| {
        let gpu = start.and_then(|start| start.gpus.iter().find(|gpu| (gpu.gpu, gpu.mig_slot) == key));
        GpuStats { gpu: gpu.cloned().unwrap_or_else(|| Gpu::new(key.0)), samples, before }
    };
    let all: Vec<_> = groups.into_iter().map(gpu_stats).collect();
    let is_named = |gpu: &GpuStats<'_>| {
        let named = run.map_or(&[][..], |run| &run.device.gpu_uuids);
        gpu.gpu.uuid.as_ref().is_some_and(|uuid| named.contains(uuid))
    };
    let has_process = |gpu: &GpuStats<'_>| {
        gpu.processes().is_some_and(|processes| processes.iter().any(|process| Some(process.pid) == pid))
    };
    let ways: [&dyn Fn(&GpuStats<'_>) -> bool; 2] = [&is_named, &has_process];
    for is_its in ways {
        if all.iter().any(is_its) {
            return all.into_iter().filter(is_its).collect();
        }
    }
    let busiest = all.into_iter().max_by(|a, b| a.busy().unwrap_or(0.0).total_cmp(&b.busy().unwrap_or(0.0)));
    busiest.into_iter().collect()
}
