//! Figures that only the CUDA driver reports.

use fake_cuda::Machine;
use fake_nvml::play;
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_nvml::read;

fn only_gpu() -> GpuReading {
    let mut reading = read(None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(reading.gpus.len(), 1);
    reading.gpus.remove(0)
}

fn rates(gpu: &GpuReading) -> [Option<u32>; 4] {
    [gpu.sm_count, gpu.max_sm_clock_mhz, gpu.max_memory_clock_mhz, gpu.memory_bus_bits]
}

#[test]
#[ignore = "started by the test below"]
fn prints_the_rates() {
    own_process::give(format!("{:?}", rates(&only_gpu())));
}

/// Rates on a machine with both libraries of a scenario.
fn rates_beside_cuda(scenario: &str) -> String {
    let machine = Machine::new(scenario);
    let program = std::env::current_exe().expect("a test knows its own path");
    own_process::result(machine.command(program).args(own_process::arguments(prints_the_rates)))
}

#[test]
#[cfg(target_os = "linux")]
fn rates_that_nvml_does_not_report_are_those_of_cuda() {
    assert_eq!(rates_beside_cuda("rates-by-cuda"), format!("{:?}", [Some(128), Some(2520), Some(10_501), Some(384)]));
    // CUDA is not asked where NVML reports everything.
    assert_eq!(rates_beside_cuda("rtx4090"), format!("{:?}", [Some(128), Some(3105), Some(10_501), Some(384)]));
}

#[test]
fn without_cuda_they_are_missing() {
    let gpu = play("rates-by-cuda", |library| read(Some(library))).expect("a driver").gpus.remove(0);
    assert_eq!(rates(&gpu), [None; 4]);
}
