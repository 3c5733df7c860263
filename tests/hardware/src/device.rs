//! The device that is measured.

use anyhow::Context;
use burn::tensor::Device;
use clap::Args;
use gpu_tuned::burn::{Place, cpu, default_float, open};

use crate::mode::Precision;

/// Which device is measured.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// Index of the GPU in CUDA's order
    #[arg(long, default_value_t = 0)]
    gpu: usize,
}

/// A device without autodiff, ready for a precision.
pub(crate) struct Opened {
    /// The device.
    pub(crate) device: Device,
    /// Memory that was free on it, in bytes; unknown for the CPU.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "there is no dry run"))]
    free_bytes: Option<u64>,
}

#[cfg(feature = "cuda")]
impl Opened {
    /// What a batch may reserve: 85% of what was free, or what was asked for if that is less.
    pub(crate) fn limit_bytes(&self, asked_mib: Option<u64>) -> u64 {
        let share = self.free_bytes.map(|free| free / 100 * 85);
        share.into_iter().chain(asked_mib.map(|mib| mib << 20)).min().unwrap_or(u64::MAX)
    }
}

impl Choice {
    /// Opens the device; once a process, before the first tensor.
    pub(crate) fn open(self, precision: Precision) -> anyhow::Result<Opened> {
        if cfg!(feature = "cuda") {
            let gpu = open(&Place::Index(self.gpu), Some(precision.float())).context("cannot open the GPU")?;
            return Ok(Opened { device: gpu.device, free_bytes: Some(gpu.memory_free.0) });
        }
        let device = cpu();
        default_float(&device, precision.float())?;
        Ok(Opened { device, free_bytes: None })
    }
}
