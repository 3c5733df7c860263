//! The device that is measured.

use anyhow::{Context, ensure};
use burn::tensor::{Device, FloatDType};
use clap::Args;
use gpu_tuned::{
    Options, Session, Tuned,
    burn::{Place, cpu, default_float, open},
};

use crate::mode::Precision;

/// Which device is measured.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// Index of the GPU in CUDA's order
    #[arg(long, default_value_t = 0)]
    gpu: usize,
}

impl Choice {
    /// Opens the device, without autodiff; once a process, before the first tensor.
    pub(crate) fn open(self, precision: Precision) -> anyhow::Result<Device> {
        self.open_in(precision.float())
    }

    /// The same for any default float type.
    pub(crate) fn open_in(self, float: FloatDType) -> anyhow::Result<Device> {
        if cfg!(feature = "gpu") {
            let gpu = open(&Place::Index(self.gpu), Some(float)).context("cannot open the GPU")?;
            return Ok(gpu.device);
        }
        let device = cpu();
        default_float(&device, float)?;
        Ok(device)
    }
}

/// The GPU of this index, or the CPU where the program knows no other device.
pub(crate) fn options(gpu: usize) -> Options {
    if cfg!(feature = "gpu") { Options::default().gpu(gpu) } else { Options::default().cpu() }
}

/// A session on that device, and on no other.
pub(crate) fn started<C: Tuned>(config: C, gpu: usize) -> anyhow::Result<Session<C>> {
    let session = options(gpu).start(config)?;
    ensure!(
        !cfg!(feature = "gpu") || session.inner_device() != Device::flex(),
        "there is no GPU: {}",
        session.selection()
    );
    Ok(session)
}

/// Gives the device back what nothing uses any more.
pub(crate) fn release(device: &Device) -> anyhow::Result<()> {
    device.sync()?;
    device.memory_cleanup();
    Ok(())
}
