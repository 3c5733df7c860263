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
    assert_eq!((gpus[1].sm_count, gpus[1].max_sm_clock_mhz, gpus[1].l2_cache), (Some(60), Some(2040), device.l2_cache));
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
