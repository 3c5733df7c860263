//! GPUs that CUDA lists, and their figures that NVML does not report: WSL2, virtual machines, Jetson and GB10.

#[allow(unsafe_code, reason = "calls of the CUDA driver")]
mod library;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{ComputeCapability, CudaDevice, GpuIdentity, GpuReading, PciAddress};
use thiserror::Error;

use crate::limit::{FIRST_CALLS, within};
use crate::unified;
use library::{Attribute, Device};

/// Reasons why CUDA lists no GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The library is missing.
    #[error("there is no CUDA driver on this machine")]
    NoLibrary,
    /// The driver has not answered for a minute.
    #[error("the CUDA driver has not answered for a minute: reset the GPU or reboot")]
    Silent,
    /// The driver failed. Most often library and kernel module have different versions, or a container has no access.
    #[error("the CUDA driver failed at {call}: {message}")]
    Call {
        /// The driver's function.
        call: &'static str,
        /// The driver's name and text for the failure.
        message: String,
    },
}

/// Lists the devices that CUDA shows to this process, in CUDA's order.
///
/// Loads and initialises the CUDA driver; creates no context and allocates nothing on a device.
///
/// # Errors
///
/// See [`CudaError`]. A driver without a device gives an empty list.
pub fn cuda_devices() -> Result<Vec<CudaDevice>, CudaError> {
    let list = || Ok(library::devices()?.iter().enumerate().map(|(index, device)| read(index, device)).collect());
    within(FIRST_CALLS, list).unwrap_or(Err(CudaError::Silent))
}

/// Completes GPUs for which NVML leaves figures out. Loads the CUDA driver only for these; creates no context.
pub(crate) fn complete_lacking(gpus: &mut [GpuReading]) {
    if gpus.iter().any(lacks_figures) {
        add_cuda_figures(gpus);
    }
}

/// Adds the figures that only CUDA reports, such as the L2 cache, to all GPUs that CUDA lists.
///
/// Loads and initialises the CUDA driver if the machine has one; creates no context and allocates nothing on a device.
pub fn add_cuda_figures(gpus: &mut [GpuReading]) {
    complete_with(gpus, &cuda_devices().unwrap_or_default());
}

/// Slices have their figures from the whole GPU.
fn complete_with(gpus: &mut [GpuReading], devices: &[CudaDevice]) {
    let is_alone = gpus.len() == 1;
    for gpu in gpus.iter_mut().filter(|gpu| gpu.mig.is_none()) {
        if let [device] = GpuIdentity::from(&*gpu).find(is_alone, devices)[..] {
            complete(gpu, device);
        }
    }
}

/// Adds CUDA's figures to a GPU. Its memory is the host's if only CUDA reports that the GPU shares it.
pub(crate) fn complete(gpu: &mut GpuReading, device: &CudaDevice) {
    gpu.complete(device);
    unified::read_memory(gpu);
}

/// Returns true if planning needs a figure that NVML did not report.
fn lacks_figures(gpu: &GpuReading) -> bool {
    let rates = [gpu.sm_count, gpu.max_sm_clock_mhz, gpu.memory_bus_bits, gpu.max_memory_clock_mhz];
    gpu.mig.is_none() && (rates.contains(&None) || gpu.memory_total.is_none() || gpu.compute_capability.is_none())
}

fn read(index: usize, device: &Device) -> CudaDevice {
    let number = |attribute| device.attribute(attribute).and_then(|figure| u32::try_from(figure).ok());
    let figure = |attribute| number(attribute).filter(|figure| *figure > 0);
    let megahertz = |attribute| figure(attribute).map(|kilohertz| kilohertz / 1000).filter(|clock| *clock > 0);
    let small = |attribute| number(attribute).and_then(|figure| u8::try_from(figure).ok());
    let capability =
        || Some(ComputeCapability::new(small(Attribute::CapabilityMajor)?, small(Attribute::CapabilityMinor)?));
    let address = || {
        let domain = number(Attribute::PciDomain)?;
        Some(PciAddress { domain, bus: small(Attribute::PciBus)?, device: small(Attribute::PciDevice)? })
    };
    let mut read = CudaDevice::default();
    read.index = index;
    read.name = device.name();
    read.uuid = device.uuid();
    read.pci_address = address();
    read.compute_capability = capability().filter(|capability| capability.major > 0);
    read.memory_total = device.memory_total().filter(|total| *total > 0).map(Bytes);
    read.unified_memory = number(Attribute::Integrated) == Some(1);
    read.sm_count = figure(Attribute::SmCount);
    read.max_sm_clock_mhz = megahertz(Attribute::ClockKhz);
    read.max_memory_clock_mhz = megahertz(Attribute::MemoryClockKhz);
    read.memory_bus_bits = figure(Attribute::BusBits);
    read.l2_cache = figure(Attribute::L2Bytes).map(|bytes| Bytes(u64::from(bytes)));
    read
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Bytes;
    use gpu_tuned_core::device::{CudaDevice, GpuReading};

    use super::{complete_with, lacks_figures};

    const FIRST: &str = "GPU-00000000-0000-4000-8000-000000000001";
    const SECOND: &str = "GPU-00000000-0000-4000-8000-000000000002";

    fn gpu(uuid: &str) -> GpuReading {
        let mut gpu = GpuReading::default();
        gpu.name = Some("NVIDIA L4".to_owned());
        gpu.uuid = Some(uuid.to_owned());
        gpu
    }

    fn device(uuid: &str) -> CudaDevice {
        let mut device = CudaDevice::default();
        device.uuid = Some(uuid.replace("GPU-", ""));
        device
    }

    #[test]
    fn only_missing_figures_of_the_same_gpu_are_taken() {
        let mut device = device(SECOND);
        (device.sm_count, device.max_sm_clock_mhz, device.l2_cache) = (Some(58), Some(2040), Some(Bytes(1 << 20)));
        let mut gpus = [gpu(FIRST), gpu(SECOND)];
        gpus[1].sm_count = Some(60);
        complete_with(&mut gpus, &[device.clone()]);
        assert_eq!((gpus[0].sm_count, gpus[0].l2_cache), (None, None));
        assert_eq!(
            (gpus[1].sm_count, gpus[1].max_sm_clock_mhz, gpus[1].l2_cache),
            (Some(60), Some(2040), device.l2_cache)
        );
        assert!(lacks_figures(&gpus[1]));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_gpu_that_only_cuda_calls_integrated_has_the_hosts_memory() {
        for is_integrated in [true, false] {
            let mut gpu = gpu(FIRST);
            let driver = (Some(Bytes(1)), Some(Bytes(1)), Some(Bytes(1)));
            (gpu.memory_total, gpu.memory_free, gpu.memory_reserved) = driver;
            let mut device = device(FIRST);
            device.unified_memory = is_integrated;
            complete_with(std::slice::from_mut(&mut gpu), &[device]);
            assert_eq!(gpu.unified_memory, is_integrated);
            let is_drivers = (gpu.memory_total, gpu.memory_free, gpu.memory_reserved) == driver;
            assert_eq!((is_drivers, gpu.memory_reserved.is_none()), (!is_integrated, is_integrated), "{gpu:?}");
        }
    }
}
