//! Opening of GPUs: contexts of the CUDA driver, libdevice, and a first computation.

use burn::tensor::{Device, DeviceError, FloatDType};
use gpu_tuned_core::Bytes;
#[cfg(any(test, feature = "cuda"))]
use std::path::{Path, PathBuf};

use super::{CudaDevice, OpenError, Place};

/// A GPU on which a first computation has been made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenGpu {
    /// The device for Burn, without autodiff: see [`open`].
    pub device: Device,
    /// The device, as CUDA shows it.
    pub gpu: CudaDevice,
    /// Free memory with the context in place, before this call allocates anything. Earlier allocations of this process
    /// count as used.
    pub memory_free: Bytes,
}

/// Every device that CUDA shows, in its order; none without a driver, without a GPU, or without feature `cuda`.
///
/// Loads and initialises the driver; creates no context and allocates nothing on a device.
///
/// # Errors
///
/// [`OpenError::Driver`] if a driver is there and refuses to answer.
pub fn cuda_devices() -> Result<Vec<CudaDevice>, OpenError> {
    #[cfg(feature = "cuda")]
    match gpu_tuned_nvml::cuda_devices() {
        Err(gpu_tuned_nvml::CudaError::NoLibrary) => {}
        devices => return Ok(devices?),
    }
    Ok(Vec::new())
}

/// The CPU: Burn's `flex` device, without autodiff.
pub fn cpu() -> Device {
    Device::flex()
}

/// Opens the GPU at `place` and makes a first computation on it.
///
/// The device comes without autodiff; `device.autodiff()` is the one to initialise a model on that is trained. Both
/// are the same hardware, compare equal, and share their settings, memory pools and seed.
///
/// `float` becomes the default float type of the device. Set it here: the first computation fixes the default for the
/// process, and `Device::configure` fails afterwards.
///
/// Creates the device's CUDA context, compiles a few small kernels, and allocates the first page of a memory pool. If
/// this process has switched TF32 off on another GPU, switches it off here first.
///
/// # Errors
///
/// Every [`OpenError`]; none of them is a panic. Where Burn itself panics, the process's panic hook still prints.
pub fn open(place: &Place, float: Option<FloatDType>) -> Result<OpenGpu, OpenError> {
    #[cfg(feature = "cuda")]
    return cuda::open(place, float);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (place, float);
        Err(OpenError::WithoutCuda)
    }
}

/// Makes `float` the default float type of `device`, before the first tensor on it; for the CPU, as [`open`] does it
/// for a GPU.
///
/// A GPU that is not open yet is opened by this, with Burn's panics.
///
/// # Errors
///
/// [`OpenError::FloatType`] if the device cannot compute in it, or has another default that a tensor or an earlier
/// call has fixed.
pub fn default_float(device: &Device, float: FloatDType) -> Result<(), OpenError> {
    match device.clone().configure(float) {
        Err(DeviceError::AlreadyInitialized { .. }) if device.settings().float_dtype == float => Ok(()),
        outcome => outcome.map_err(OpenError::FloatType),
    }
}

#[cfg(feature = "cuda")]
pub(super) mod cuda {
    use std::convert::identity;
    use std::env;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use burn::tensor::{Device, FloatDType, Tensor};
    use cubecl::cuda::compiler::CudaBackend;
    use cudarc::driver::{CudaContext, DriverError};
    use gpu_tuned_core::Bytes;
    use gpu_tuned_nvml::{CudaError, cuda_devices};

    use super::{CudaDevice, OpenError, OpenGpu, Place, locate};
    use crate::device::tf32::{is_to_be_switched_off, switch_tf32_off};
    use crate::device::{catching, catching_on_thread};

    /// Search path of cubecl-llvm 0.11.3 without `CUDA_PATH` (its `nvptx/libdevice.rs`).
    const TOOLKITS: [&str; 4] = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr"];

    pub(super) fn open(place: &Place, float: Option<FloatDType>) -> Result<OpenGpu, OpenError> {
        let gpu = place.find(&cuda_devices()?)?.clone();
        check_libdevice()?;
        let (context, memory_free) = retain(&gpu)?;
        if is_to_be_switched_off(&gpu) {
            switch_tf32_off(place)?;
        }
        let device = Device::cuda(gpu.index);
        let failed = |message| OpenError::FirstTouch { device: Box::new(gpu.clone()), message };
        let set = || float.map_or(Ok(()), |float| super::default_float(&device, float));
        catching(set).map_err(failed)??;
        catching(|| touch(&device)).and_then(identity).map_err(failed)?;
        // `CubeCL` has retained the context. Dropped earlier, it would be destroyed and created again.
        drop(context);
        Ok(OpenGpu { device, gpu, memory_free })
    }

    fn check_libdevice() -> Result<(), OpenError> {
        if CudaBackend::default() != CudaBackend::Llvm {
            return Ok(());
        }
        // As cubecl reads it: a value that is not Unicode counts as none.
        let cuda_path = env::var("CUDA_PATH").ok().map(PathBuf::from);
        let found = locate(cuda_path.as_deref(), &TOOLKITS.map(Path::new));
        found.map(drop).map_err(|looked_in| OpenError::LibdeviceMissing { looked_in })
    }

    /// `e^0 + e^0`: uploads, compiles with libdevice, launches, and reads back, which alone reports what went wrong.
    fn touch(device: &Device) -> Result<(), String> {
        let sum = Tensor::<1>::from_floats([0.0, 0.0], device).exp().sum();
        let value = sum.try_into_scalar::<f32>().map_err(|error| error.to_string())?;
        let right = (value - 2.0).abs() < 0.01;
        right.then_some(()).ok_or_else(|| format!("e^0 + e^0 came out as {value}"))
    }

    impl From<CudaError> for OpenError {
        fn from(error: CudaError) -> Self {
            match error {
                CudaError::Call { call, message } => Self::Driver { call, message },
                _ => Self::NoDriver,
            }
        }
    }

    /// Retains the device's primary context until it is dropped. Also returns the memory that is free with the context.
    ///
    /// `CubeCL` uses the same context, so a retained one costs nothing extra. If `CubeCL` cannot create a context, it panics on
    /// its own thread, and the caller never sees the reason; this call returns the driver's error first.
    pub(in crate::device) fn retain(device: &CudaDevice) -> Result<(Arc<CudaContext>, Bytes), OpenError> {
        let take = || {
            let context = CudaContext::new(device.index)?;
            let (free, _) = context.mem_get_info()?;
            Ok((context, Bytes(free as u64)))
        };
        // On a thread of its own, because it makes the context current: the caller's thread keeps the one it had.
        let taken = catching_on_thread(|| take().map_err(describe)).and_then(identity);
        taken.map_err(|message| OpenError::Context { device: Box::new(device.clone()), message })
    }

    /// Memory that is free on a device that is open.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]: the driver may refuse or lose the device.
    pub fn memory_free(device: &CudaDevice) -> Result<Bytes, OpenError> {
        retain(device).map(|(_, free)| free)
    }

    fn describe(error: DriverError) -> String {
        let text = error.error_string().ok().and_then(|text| text.to_str().ok()).unwrap_or("no description");
        format!("{:?} ({text})", error.0)
    }
}

#[cfg(any(test, feature = "cuda"))]
const DIRECTORY: &str = "nvvm/libdevice";
#[cfg(any(test, feature = "cuda"))]
const FILE: &str = "libdevice.10.bc";

/// Finds libdevice as Burn's compiler does. The error lists the paths that the compiler tries.
///
/// `CUDA_PATH` excludes every other place; without it, the first root with the directory is the only one that counts.
#[cfg(any(test, feature = "cuda"))]
fn locate(cuda_path: Option<&Path>, roots: &[&Path]) -> Result<PathBuf, Vec<PathBuf>> {
    let file = |root: &Path| root.join(DIRECTORY).join(FILE);
    let root = cuda_path.or_else(|| roots.iter().copied().find(|root| root.join(DIRECTORY).is_dir()));
    match root.map(file) {
        Some(path) if path.is_file() => Ok(path),
        Some(path) => Err(vec![path]),
        None => Err(roots.iter().map(|root| file(root)).collect()),
    }
}

#[cfg(test)]
mod tests;
