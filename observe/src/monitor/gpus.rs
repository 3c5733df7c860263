//! Samples of GPUs, with feature `nvml`.

use std::path::Path;

use crate::recording::{GpuSample, Start};

#[cfg(feature = "nvml")]
mod driver {
    use crate::recording::{Gpu, GpuSample, Start};
    use gpu_tuned_core::matching::identify;
    use gpu_tuned_core::profile::ProfileTable;
    use gpu_tuned_nvml::{Telemetry, WatchedGpu};

    use super::super::names::Names;

    /// GPUs that the driver samples.
    pub(super) struct Driver {
        telemetry: Telemetry,
        names: Names,
        count: usize,
    }

    impl Driver {
        pub(super) fn new(telemetry: Telemetry) -> Self {
            Self { count: telemetry.gpus().count(), telemetry, names: Names::default() }
        }

        pub(super) fn describe(&self, start: &mut Start) {
            start.driver_version = self.telemetry.driver_version().map(str::to_owned);
            start.gpus = self.telemetry.gpus().map(identified).collect();
            let trouble = self.telemetry.trouble().iter().map(|gpu| format!("GPU {}: {}", gpu.index, gpu.what));
            start.trouble.extend(trouble);
            if start.gpus.is_empty() && start.trouble.is_empty() {
                start.trouble.push("the driver works and shows no GPU".to_owned());
            }
        }

        pub(super) fn sample(&mut self, now: impl Fn() -> f64) -> (Vec<GpuSample>, bool) {
            let mut samples = self.telemetry.look(now);
            self.names.fill_in(samples.iter_mut().filter_map(|sample| sample.processes.as_mut()).flatten());
            let count = self.telemetry.gpus().count();
            let is_changed = std::mem::replace(&mut self.count, count) != count;
            (samples, is_changed)
        }
    }

    fn identified(watched: &WatchedGpu) -> Gpu {
        let mut gpu = watched.gpu.clone();
        let found = identify(&watched.reading, &ProfileTable::default());
        gpu.profile = found.profile().map(|profile| profile.id.to_string());
        gpu
    }
}

/// The sampled GPUs, or the reason for none.
pub(super) struct Gpus {
    #[cfg(feature = "nvml")]
    driver: Option<driver::Driver>,
    trouble: Option<String>,
    only: Option<Vec<u32>>,
}

impl Gpus {
    #[cfg(feature = "nvml")]
    pub(super) fn open(library: Option<&Path>, only: Option<Vec<u32>>) -> Self {
        match gpu_tuned_nvml::Telemetry::open(library) {
            Ok(telemetry) => Self { driver: Some(driver::Driver::new(telemetry)), trouble: None, only },
            Err(error) => Self { driver: None, trouble: Some(error.to_string()), only },
        }
    }

    #[cfg(not(feature = "nvml"))]
    pub(super) fn open(_library: Option<&Path>, only: Option<Vec<u32>>) -> Self {
        Self { trouble: Some("built without feature `nvml`: GPUs are not sampled".to_owned()), only }
    }

    /// Adds the GPUs, and reasons for missing ones, to a monitor's start.
    pub(super) fn describe(&self, start: &mut Start) {
        start.trouble.extend(self.trouble.clone());
        #[cfg(feature = "nvml")]
        if let Some(driver) = &self.driver {
            driver.describe(start);
        }
        if let Some(only) = &self.only {
            let missing = |wanted: &&u32| !start.gpus.iter().any(|gpu| gpu.gpu == **wanted);
            if !start.gpus.is_empty() {
                let missing = only.iter().filter(missing).map(|wanted| format!("there is no GPU {wanted}"));
                start.trouble.extend(missing);
            }
            start.gpus.retain(|gpu| only.contains(&gpu.gpu));
        }
    }

    /// Samples the GPUs. The flag is true if their number changed since the last sample.
    #[cfg(feature = "nvml")]
    pub(super) fn sample(&mut self, now: impl Fn() -> f64) -> (Vec<GpuSample>, bool) {
        let (mut samples, is_changed) = self.driver.as_mut().map(|driver| driver.sample(now)).unwrap_or_default();
        if let Some(only) = &self.only {
            samples.retain(|sample| only.contains(&sample.gpu));
        }
        (samples, is_changed)
    }

    #[cfg(not(feature = "nvml"))]
    #[expect(clippy::unused_self, reason = "it has a driver with feature `nvml`")]
    pub(super) fn sample(&mut self, _now: impl Fn() -> f64) -> (Vec<GpuSample>, bool) {
        (Vec::new(), false)
    }
}
