//! Figures that NVML does not report, from the CUDA driver: WSL2, virtual machines, Jetson and GB10.

#[allow(unsafe_code, reason = "calls of the CUDA driver")]
mod library;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{ComputeCapability, GpuReading, PciAddress};

use crate::gauge::bare_uuid;
use library::{Attribute, Device};

/// Completes GPUs for which NVML leaves figures out. Loads the CUDA driver only for these; creates no context.
pub(crate) fn complete(gpus: &mut [GpuReading]) {
    if gpus.iter().any(lacks_figures) {
        complete_with(gpus, &devices());
    }
}

/// Adds the figures that only CUDA reports, such as the L2 cache, to all GPUs that CUDA lists.
///
/// Loads and initialises the CUDA driver if the machine has one; creates no context and allocates nothing on a device.
pub fn add_cuda_figures(gpus: &mut [GpuReading]) {
    complete_with(gpus, &devices());
}

fn complete_with(gpus: &mut [GpuReading], devices: &[GpuReading]) {
    let is_alone = gpus.len() == 1 && devices.len() == 1;
    for gpu in gpus {
        let mut same = devices.iter().filter(|device| is_same(gpu, device, is_alone));
        if let (Some(device), None) = (same.next(), same.next()) {
            gpu.complete(device);
        }
    }
}

/// Returns true if planning needs a figure that NVML did not report. Slices have their figures from the whole GPU.
fn lacks_figures(gpu: &GpuReading) -> bool {
    let rates = [gpu.sm_count, gpu.max_sm_clock_mhz, gpu.memory_bus_bits, gpu.max_memory_clock_mhz];
    gpu.mig.is_none() && (rates.contains(&None) || gpu.memory_total.is_none() || gpu.compute_capability.is_none())
}

fn devices() -> Vec<GpuReading> {
    library::devices().iter().map(read).collect()
}

fn read(device: &Device) -> GpuReading {
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
    let mut gpu = GpuReading::default();
    gpu.name = device.name();
    gpu.uuid = device.uuid();
    gpu.pci_address = address();
    gpu.compute_capability = capability().filter(|capability| capability.major > 0);
    gpu.memory_total = device.memory_total().filter(|total| *total > 0).map(Bytes);
    gpu.cuda_memory_total = gpu.memory_total;
    gpu.unified_memory = number(Attribute::Integrated) == Some(1);
    gpu.sm_count = figure(Attribute::SmCount);
    gpu.max_sm_clock_mhz = megahertz(Attribute::ClockKhz);
    gpu.boost_clock_mhz = gpu.max_sm_clock_mhz;
    gpu.max_memory_clock_mhz = megahertz(Attribute::MemoryClockKhz);
    gpu.memory_bus_bits = figure(Attribute::BusBits);
    gpu.l2_cache = figure(Attribute::L2Bytes).map(|bytes| Bytes(u64::from(bytes)));
    gpu
}

/// Returns true if NVML and CUDA report one GPU: by UUID, by PCI address, or because there is no other on either side.
fn is_same(gpu: &GpuReading, device: &GpuReading, is_alone: bool) -> bool {
    let is_named_alike = match (gpu.name.as_deref(), device.name.as_deref()) {
        // A Jetson is `Orin (nvgpu)` for NVML and `Orin` for CUDA.
        (Some(ours), Some(theirs)) => ours.starts_with(theirs) || theirs.starts_with(ours),
        _ => true,
    };
    let uuids = gpu.uuid.as_deref().zip(device.uuid.as_deref());
    let same_uuid = uuids.map(|(ours, theirs)| bare_uuid(ours).eq_ignore_ascii_case(bare_uuid(theirs)));
    let same_address = gpu.pci_address.zip(device.pci_address).map(|(ours, theirs)| ours == theirs);
    gpu.mig.is_none() && is_named_alike && same_uuid.or(same_address).unwrap_or(is_alone)
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Bytes;
    use gpu_tuned_core::device::GpuReading;

    use super::{complete_with, lacks_figures};

    fn gpu(name: &str, uuid: Option<&str>) -> GpuReading {
        let mut gpu = GpuReading::default();
        gpu.name = Some(name.to_owned());
        gpu.uuid = uuid.map(str::to_owned);
        gpu
    }

    #[test]
    fn only_missing_figures_of_the_same_gpu_are_taken() {
        let mut device = gpu("NVIDIA L4", Some("0000-2"));
        (device.sm_count, device.max_sm_clock_mhz, device.l2_cache) = (Some(58), Some(2040), Some(Bytes(1 << 20)));
        let mut gpus = [gpu("NVIDIA L4", Some("GPU-0000-1")), gpu("NVIDIA L4", Some("GPU-0000-2"))];
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
    fn one_gpu_on_both_sides_is_the_same_if_the_names_agree() {
        for (nvml, cuda, is_same) in
            [("Orin (nvgpu)", "Orin", true), ("NVIDIA GB10", "NVIDIA GB10", true), ("NVIDIA L4", "Orin", false)]
        {
            let mut device = gpu(cuda, Some("0000-7"));
            device.sm_count = Some(8);
            let mut gpus = [gpu(nvml, None)];
            complete_with(&mut gpus, &[device]);
            assert_eq!(gpus[0].sm_count.is_some(), is_same, "{nvml}, {cuda}");
        }
    }
}
