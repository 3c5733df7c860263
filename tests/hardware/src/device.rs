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
    pub(crate) free_bytes: Option<u64>,
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
