//! The device that is measured.

use std::thread;

use anyhow::{Context, ensure};
use burn::tensor::{Device, FloatDType};
use clap::Args;
use gpu_tuned::{
    Kernels, Options, Pins, Session, Tuned,
    burn::{Place, cpu, default_float, open},
    kernels::{cudnn_faults, is_library_selected, select_library},
};
use serde::Serialize;

use crate::{
    catching::{Failure, catching},
    mode::Precision,
};

/// The measured device, and its kernels.
#[derive(Args, Clone, Copy, Debug, Default, Serialize)]
pub struct Choice {
    /// Index of the GPU in CUDA's order
    #[arg(long, default_value_t = 0)]
    #[serde(skip)]
    gpu: usize,
    /// Compute with the library's kernels
    #[arg(long)]
    library: bool,
    /// Products of f32 keep all bits.
    #[arg(skip)]
    #[serde(skip)]
    full_f32: bool,
}

impl Choice {
    /// Opens the device, without autodiff; once a process, before the first tensor.
    pub fn open(self, precision: Precision) -> anyhow::Result<Device> {
        self.open_in(precision.float())
    }

    /// Opens the device with any default float type.
    pub fn open_in(self, float: FloatDType) -> anyhow::Result<Device> {
        let device = if cfg!(feature = "cuda") {
            open(&Place::Index(self.gpu), Some(float)).context("cannot open the GPU")?.device
        } else {
            let device = cpu();
            default_float(&device, float)?;
            device
        };
        if self.library {
            self.select_library(&device)?;
        }
        Ok(device)
    }

    /// Computes with the library's kernels from now on.
    pub(crate) fn select_library(self, device: &Device) -> anyhow::Result<()> {
        select_library(device, !self.full_f32)?;
        for fault in cudnn_faults() {
            eprintln!("by Burn's kernels: {fault}");
        }
        Ok(())
    }

    /// Options of a session on the device, without pins.
    pub fn options(self) -> Options {
        options(self.gpu)
    }

    /// Pins of a session with the chosen kernels.
    pub fn pins(self) -> Pins {
        let mut pins = Pins::default();
        pins.kernels = self.library.then_some(Kernels::Library);
        pins
    }

    /// Fails if a session computes with Burn's kernels in place of the library's.
    pub fn check_kernels(self) -> anyhow::Result<()> {
        ensure!(!self.library || is_library_selected(), "the session did not select the library's kernels");
        Ok(())
    }

    /// Switches TF32 off before the device is opened. Kernels tuned without TF32 are cached separately.
    #[cfg(feature = "cuda")]
    pub(crate) fn without_tf32(self) -> anyhow::Result<Self> {
        use gpu_tuned::burn::switch_tf32_off;
        use gpu_tuned::warm::{Caches, Fingerprint, begin};

        let machine = gpu_tuned::detect();
        let gpu = machine.gpus.get(self.gpu).context("there is no such GPU")?;
        let fingerprint = Fingerprint::new([gpu], machine.driver_version.as_deref());
        let fingerprint = fingerprint.context("BUG: there is a GPU")?.full_f32(true);
        let warm = begin(&fingerprint, &[self.gpu]);
        let apart = !matches!(warm.caches, Caches::Configured { .. } | Caches::TooLate);
        ensure!(apart, "what was tuned with TF32 may be in these caches, take their settings out: {warm}");
        switch_tf32_off(&Place::Index(self.gpu))?;
        Ok(Self { full_f32: true, ..self })
    }

    /// A CPU has no TF32.
    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::unnecessary_wraps, reason = "the signature is that of the version for GPUs")]
    pub(crate) fn without_tf32(self) -> anyhow::Result<Self> {
        Ok(Self { full_f32: true, ..self })
    }
}

/// Kernels that compute in this process.
pub(crate) fn kernels() -> Kernels {
    if is_library_selected() { Kernels::Library } else { Kernels::Burn }
}

/// The GPU of this index, or the CPU in a program without CUDA.
pub fn options(gpu: usize) -> Options {
    if cfg!(feature = "cuda") { Options::default().gpu(gpu) } else { Options::default().cpu() }
}

/// A session on exactly that device.
pub fn started<C: Tuned>(config: C, gpu: usize) -> anyhow::Result<Session<C>> {
    let session = options(gpu).start(config)?;
    ensure!(
        !cfg!(feature = "cuda") || session.inner_device() != Device::flex(),
        "there is no GPU: {}",
        session.selection()
    );
    Ok(session)
}

/// Runs `work` in a thread of its own, and releases the memory of its pools. Pools belong to threads, and their pages
/// never shrink.
pub fn alone<T: Send>(device: &Device, work: impl FnOnce() -> anyhow::Result<T> + Send) -> Result<T, Failure> {
    let released = || {
        let outcome = catching(work);
        catching(|| release(device)).and(outcome)
    };
    catching(|| thread::scope(|scope| scope.spawn(released).join()).ok().context("the thread ended"))?
}

/// Releases unused memory to the device.
pub fn release(device: &Device) -> anyhow::Result<()> {
    device.sync()?;
    device.memory_cleanup();
    Ok(())
}
