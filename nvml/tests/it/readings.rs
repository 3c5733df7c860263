//! Readings of whole GPUs, of slices, and of drivers in trouble.

use fake_nvml::play;
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_nvml::{DriverReading, read};
use serde_json::Value;

/// GPUs of which every figure is reported, then some, then false ones; several GPUs; slices; trouble of one GPU, then of the driver.
/// Names, PCI ids, capabilities and multiprocessors are those of the data sheet table.
const SCENARIOS: &str = "rtx4090 rtx4090-48gb rtx4090-d rtx4090-laptop h200 neighbour vgpu old-driver-memory-v1 name-only \
                         garbage-name nonsense two-gpus a100-mig-slice mig-without-slices no-gpu gpu-lost gpu-denied \
                         count-lies count-lies-much count-fails library-mismatch no-permission driver-not-loaded \
                         unknown-at-init";

/// The figures that are known, one a line.
fn figures(gpu: &GpuReading) -> String {
    let Ok(Value::Object(figures)) = serde_json::to_value(gpu) else { panic!("{gpu:?}") };
    let known = figures.into_iter().filter(|(_, figure)| !figure.is_null());
    known.map(|(name, figure)| format!("  {name} = {figure}\n")).collect()
}

#[test]
fn readings_are_those_of_the_scenarios() {
    let reading = |scenario: &str| match play(scenario, |library| read(Some(library))) {
        Ok(DriverReading { driver_version, gpus, trouble, .. }) => {
            let version = format!("driver {}\n", driver_version.as_deref().unwrap_or("of unknown version"));
            let gpus = gpus.iter().map(|gpu| format!("GPU\n{}", figures(gpu)));
            let trouble = trouble.iter().map(|trouble| format!("{trouble:?}\n"));
            [version].into_iter().chain(gpus).chain(trouble).collect::<String>()
        }
        Err(error) => format!("{error}\n"),
    };
    let text: Vec<_> = SCENARIOS.split(' ').map(|name| format!("# {name}\n{}", reading(name))).collect();
    insta::assert_snapshot!(text.join("\n"));
}
