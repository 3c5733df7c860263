//! Samples of GPUs, with feature `nvml`.

use std::path::Path;

#[cfg(feature = "nvml")]
use super::driver::Driver;
use crate::recording::{GpuSample, Start};

/// The sampled GPUs, or the reason for none.
pub(super) struct Gpus {
    #[cfg(feature = "nvml")]
    driver: Option<Driver>,
    trouble: Option<String>,
    only: Option<Vec<u32>>,
}

impl Gpus {
    #[cfg(feature = "nvml")]
    pub(super) fn open(library: Option<&Path>, only: Option<Vec<u32>>) -> Self {
        match gpu_tuned_nvml::Telemetry::open(library) {
            Ok(telemetry) => Self { driver: Some(Driver::new(telemetry)), trouble: None, only },
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
    pub(super) fn sample(&mut self) -> (Vec<GpuSample>, bool) {
        let (mut samples, is_changed) = self.driver.as_mut().map(Driver::sample).unwrap_or_default();
        if let Some(only) = &self.only {
            samples.retain(|sample| only.contains(&sample.gpu));
        }
        (samples, is_changed)
    }

    #[cfg(not(feature = "nvml"))]
    #[expect(clippy::unused_self, reason = "it has a driver with feature `nvml`")]
    pub(super) fn sample(&mut self) -> (Vec<GpuSample>, bool) {
        (Vec::new(), false)
    }
}
