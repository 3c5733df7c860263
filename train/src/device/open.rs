use burn::tensor::{Device, DeviceError, FloatDType};
use gpu_tuned_core::Bytes;

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

/// Returns true if tensors can be summed over GPUs of this process. Burn uses NCCL, which is loaded at run time.
pub fn has_collectives(device: &Device) -> bool {
    #[cfg(feature = "cuda")]
    return cuda::has_collectives(device);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        false
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::convert::identity;
    use std::env;
    use std::path::{Path, PathBuf};

    use burn::tensor::{Device, FloatDType, Tensor};
    use cubecl::cuda::compiler::CudaBackend;
    use gpu_tuned_nvml::cuda_devices;

    use super::{OpenError, OpenGpu, Place};
    use crate::device::guard::catching;
    use crate::device::{driver, full_f32, libdevice};

    /// Search path of cubecl-llvm 0.11.3 without `CUDA_PATH` (its `nvptx/libdevice.rs`).
    const TOOLKITS: [&str; 4] = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr"];

    pub(super) fn open(place: &Place, float: Option<FloatDType>) -> Result<OpenGpu, OpenError> {
        let gpu = place.find(&cuda_devices()?)?.clone();
        check_libdevice()?;
        let (context, memory_free) = driver::retain(&gpu)?;
        if full_f32::is_to_be_switched_off(&gpu) {
            full_f32::switch_tf32_off(place)?;
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

    pub(super) fn has_collectives(device: &Device) -> bool {
        let indices = cuda_devices().unwrap_or_default().into_iter().map(|gpu| gpu.index);
        let opened = indices.into_iter().find(|index| Device::cuda(*index) == *device).map(cubecl::Device::cuda);
        opened.and_then(Result::ok).is_some_and(|device| device.client().has_device_transport())
    }

    fn check_libdevice() -> Result<(), OpenError> {
        if CudaBackend::default() != CudaBackend::Llvm {
            return Ok(());
        }
        // As cubecl reads it: a value that is not Unicode counts as none.
        let cuda_path = env::var("CUDA_PATH").ok().map(PathBuf::from);
        let found = libdevice::locate(cuda_path.as_deref(), &TOOLKITS.map(Path::new));
        found.map(drop).map_err(|looked_in| OpenError::LibdeviceMissing { looked_in })
    }

    /// `e^0 + e^0`: uploads, compiles with libdevice, launches, and reads back, which alone reports what went wrong.
    fn touch(device: &Device) -> Result<(), String> {
        let sum = Tensor::<1>::from_floats([0.0, 0.0], device).exp().sum();
        let value = sum.try_into_scalar::<f32>().map_err(|error| error.to_string())?;
        let right = (value - 2.0).abs() < 0.01;
        right.then_some(()).ok_or_else(|| format!("e^0 + e^0 came out as {value}"))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{FloatDType, Tensor};

    use super::{cpu, cuda_devices, default_float};

    #[test]
    fn looking_for_devices_fails_at_most_with_an_error() {
        for device in cuda_devices().unwrap_or_default() {
            assert!(device.pci_address.is_some(), "{device}");
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_program_without_cuda_says_so() {
        use crate::device::{OpenError, Place, open};
        assert!(matches!(open(&Place::Only, None), Err(OpenError::WithoutCuda)));
    }

    #[test]
    fn the_default_float_is_set_once_and_may_be_repeated() {
        default_float(&cpu(), FloatDType::F32).expect("the CPU's own default");
        let _first = Tensor::<1>::zeros([1], &cpu());
        default_float(&cpu(), FloatDType::F32).expect("the same again");
        default_float(&cpu().autodiff(), FloatDType::F32).expect("the same hardware");
        assert!(default_float(&cpu(), FloatDType::F64).is_err());
    }

    #[test]
    fn a_batch_from_the_plain_device_trains_weights_of_the_autodiff_one() {
        let weights = Tensor::<2>::ones([3, 1], &cpu().autodiff()).require_grad();
        let batch = Tensor::<2>::from_floats([[1.0, 2.0, 3.0]], &cpu());
        let gradients = batch.matmul(weights.clone()).sum().backward();
        let gradient = weights.grad(&gradients).expect("a gradient");
        assert_eq!(gradient.try_into_vec_as::<f32>().expect("a value"), [1.0, 2.0, 3.0]);
    }
}
