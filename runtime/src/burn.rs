//! Burn's devices: the planned GPU found among CUDA's, opened without a panic, and probed for the precision of its fp32
//! products.
//!
//! Without feature `cuda` only the CPU is available: [`cuda_devices`] is empty and [`open`] returns an error.

use burn::tensor::Device;
#[doc(inline)]
pub use gpu_tuned_train::device::{
    CudaDevice, Gemm, MatmulMath, MatmulProbe, OpenError, OpenGpu, Place, ProbeError, cpu, cuda_devices, default_float,
    open, probe, switch_tf32_off,
};

use crate::start::first_look;

/// Returns the device for a program that needs one before it has a config, not opened and without autodiff.
///
/// This is the first GPU that CUDA lists if the program is built with feature `cuda`, else the CPU. A session takes the same
/// device on a machine with at most one GPU. On other machines, a session may take another GPU; its strategy moves model and
/// batches there. Start the session before creating tensors on this device.
///
/// ```
/// let device = gpu_tuned::device();
/// assert!(!device.is_autodiff());
/// ```
pub fn device() -> Device {
    // Reads the machine before this process allocates memory on it.
    let machine = first_look();
    let gpus = cuda_devices().unwrap_or_default();
    let first = machine.gpus.first().and_then(|gpu| Place::of(gpu, machine.gpus.len() == 1).find(&gpus).ok());
    #[cfg(feature = "cuda")]
    if let Some(gpu) = first {
        return Device::cuda(gpu.index);
    }
    let _ = first;
    cpu()
}
