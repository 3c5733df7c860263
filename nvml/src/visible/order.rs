//! Order in which CUDA numbers GPUs.

use core::cmp::Reverse;

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::identify;
use gpu_tuned_core::profile::ProfileTable;

/// Value of `CUDA_DEVICE_ORDER` for the order of PCI addresses.
const BY_ADDRESS: &str = "PCI_BUS_ID";

/// GPUs in CUDA's order, each whole or as its MIG slices.
///
/// CUDA documents its default as a heuristic, from fastest to slowest. The prediction uses the fp32 rate. Equal GPUs stay
/// in the driver's order, which is that of PCI addresses.
pub(super) fn in_cuda_order<'g>(gpus: &'g [GpuReading], order: Option<&str>) -> Vec<&'g [GpuReading]> {
    let mut devices: Vec<_> = gpus.chunk_by(|one, next| one.mig.is_some() && one.index == next.index).collect();
    if devices.len() < 2 {
        return devices;
    }
    if order.is_some_and(|order| order.trim() == BY_ADDRESS) {
        devices.sort_by_key(|device| device[0].pci_address);
    } else {
        devices.sort_by_cached_key(|device| Reverse(fp32_gflops(&device[0]) as u64));
    }
    devices
}

/// fp32 rate in 10^9 operations per second; 0 if unknown.
fn fp32_gflops(gpu: &GpuReading) -> f64 {
    let lanes = || Some(f64::from(gpu.sm_count?) * f64::from(gpu.compute_capability?.cores_per_sm()?));
    let from_units = || Some(lanes()? * 2.0 * f64::from(gpu.max_sm_clock_mhz?) / 1000.0);
    let from_profile = || {
        let found = identify(gpu, &ProfileTable::default());
        found.profile()?.peaks.fp32.as_ref().map(|peak| peak.tflops * 1000.0)
    };
    from_units().or_else(from_profile).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::device::{ComputeCapability, GpuReading};

    use super::in_cuda_order;

    fn gpu(index: u32, bus: &str, sm_count: Option<u32>) -> GpuReading {
        let mut gpu = GpuReading::default();
        gpu.index = index;
        gpu.pci_address = format!("{bus}:00.0").parse().ok();
        gpu.sm_count = sm_count;
        (gpu.compute_capability, gpu.max_sm_clock_mhz) = (Some(ComputeCapability::new(8, 6)), Some(2000));
        gpu
    }

    fn indices(gpus: &[GpuReading], order: Option<&str>) -> Vec<u32> {
        in_cuda_order(gpus, order).into_iter().map(|device| device[0].index).collect()
    }

    #[test]
    fn the_fastest_is_first_unless_addresses_are_asked_for() {
        let gpus = [gpu(0, "41", Some(30)), gpu(1, "01", Some(80)), gpu(2, "c1", Some(80)), gpu(3, "21", None)];
        for default in [None, Some("FASTEST_FIRST"), Some(""), Some("anything")] {
            assert_eq!(indices(&gpus, default), [1, 2, 0, 3], "{default:?}");
        }
        assert_eq!(indices(&gpus, Some("PCI_BUS_ID")), [1, 3, 0, 2]);
    }

    #[test]
    fn a_gpu_without_clocks_is_ranked_by_its_profile() {
        let mut named = gpu(1, "21", None);
        named.name = Some("NVIDIA GeForce RTX 4090".to_owned());
        named.compute_capability = Some(ComputeCapability::new(8, 9));
        assert_eq!(indices(&[gpu(0, "01", Some(30)), named], None), [1, 0]);
    }
}
