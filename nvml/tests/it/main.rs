//! Integration tests of the whole crate in one program.

mod cuda;
mod driver_trouble;
mod gauging;
mod readings;
mod shown;
mod telemetry;
mod visible;

use fake_nvml::play;
use gpu_tuned_nvml::{CudaEnvironment, DriverReading, read};

/// Every GPU of a scenario, in NVML's order.
fn reading(scenario: &str) -> DriverReading {
    play(scenario, |library| read(Some(library))).unwrap_or_else(|error| panic!("{scenario}: {error}"))
}

/// A process with this `CUDA_VISIBLE_DEVICES`.
fn environment(visible_devices: Option<&str>) -> CudaEnvironment {
    let mut environment = CudaEnvironment::default();
    environment.visible_devices = visible_devices.map(str::to_owned);
    environment
}
