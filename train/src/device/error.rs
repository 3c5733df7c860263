use std::path::PathBuf;

use burn::tensor::DeviceError;
use thiserror::Error;

use super::{CudaDevice, Place};

/// Why a device could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The program is built without feature `cuda`.
    #[error("this program is built without CUDA: enable feature `cuda` of gpu-tuned")]
    WithoutCuda,
    /// The CUDA driver library is not on this machine.
    #[error("there is no CUDA driver on this machine")]
    NoDriver,
    /// The driver is there and refused to answer: most often a library and a kernel module of different versions, or
    /// a container without access to the device.
    #[error("the CUDA driver failed at {call}: {message}")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// The driver's name and text for the failure.
        message: String,
    },
    /// CUDA does not show the wanted device.
    #[error("CUDA does not show {wanted}; it shows {}; is it hidden by CUDA_VISIBLE_DEVICES?", list(found))]
    NoSuchDevice {
        /// The device that was asked for.
        wanted: Place,
        /// Every device that CUDA shows.
        found: Vec<CudaDevice>,
    },
    /// More than one of CUDA's devices could be the wanted one.
    #[error("{wanted} could be any of {}", list(found))]
    Ambiguous {
        /// The device that was asked for.
        wanted: Place,
        /// The devices that match.
        found: Vec<CudaDevice>,
    },
    /// NVIDIA's mathematics library, which Burn's kernels are linked with when they are compiled, is missing.
    #[error(
        "libdevice.10.bc is missing (looked for {}): install the CUDA toolkit with its `nvvm` part, and set CUDA_PATH \
         to the directory that holds `nvvm/libdevice/libdevice.10.bc`",
        paths(looked_in)
    )]
    LibdeviceMissing {
        /// The files that were tried.
        looked_in: Vec<PathBuf>,
    },
    /// The device has no context: its memory is full, or another process uses it exclusively.
    #[error("{device} gives no CUDA context: {message}")]
    Context {
        /// The device.
        device: Box<CudaDevice>,
        /// The driver's name and text for the failure.
        message: String,
    },
    /// The device was used before, or did not open without TF32.
    #[error("TF32 cannot be switched off on {device}: {message}; switch it off before anything uses a GPU")]
    Tf32 {
        /// The device.
        device: Box<CudaDevice>,
        /// Error of `CubeCL`, or message of the panic.
        message: String,
    },
    /// First computation on the device failed. Another attempt starts from the beginning.
    #[error("the first computation on {device} failed: {message}")]
    FirstTouch {
        /// The device.
        device: Box<CudaDevice>,
        /// The panic's message, or what reading the result returned.
        message: String,
    },
    /// The device does not take the float type, or tensors of another one were made first.
    #[error("the default float type cannot be set")]
    FloatType(#[source] DeviceError),
}

fn list(devices: &[CudaDevice]) -> String {
    match devices {
        [] => "no device".to_owned(),
        _ => devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
