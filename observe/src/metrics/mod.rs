//! Metrics of samples and steps: one table each for CSV, Prometheus, TensorBoard and traces.

pub(crate) mod csv;
mod figure;
pub(crate) mod prometheus;

use crate::recording::Throttle;
#[cfg(feature = "tensorboard")]
pub(crate) use figure::NamedFigure;
pub use figure::{Figure, GPU_FIGURES, HOST_FIGURES};
pub(crate) use figure::{gpu_figures, phases, step_figures};

/// Reasons that are exported, whether they hold or not.
pub(crate) const REASONS: [Throttle; 6] = [
    Throttle::PowerCap,
    Throttle::PowerBrake,
    Throttle::ThermalSoftware,
    Throttle::ThermalHardware,
    Throttle::Hardware,
    Throttle::SyncBoost,
];

/// Returns the key of a throttle reason, as recordings spell it.
pub fn throttle_key(reason: Throttle) -> &'static str {
    match reason {
        Throttle::PowerCap => "power_cap",
        Throttle::PowerBrake => "power_brake",
        Throttle::ThermalSoftware => "thermal_software",
        Throttle::ThermalHardware => "thermal_hardware",
        Throttle::Hardware => "hardware",
        Throttle::SyncBoost => "sync_boost",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::{REASONS, Throttle, throttle_key};

    #[test]
    fn keys_are_those_of_recordings() {
        for reason in REASONS.into_iter().chain([Throttle::Unknown]) {
            assert_eq!(serde_json::to_value(reason).expect("JSON"), throttle_key(reason));
        }
    }
}
