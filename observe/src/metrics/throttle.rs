//! Keys of throttle reasons.

use crate::recording::Throttle;

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
pub fn key(reason: Throttle) -> &'static str {
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
    use super::{REASONS, Throttle, key};

    #[test]
    fn keys_are_those_of_recordings() {
        for reason in REASONS.into_iter().chain([Throttle::Unknown]) {
            assert_eq!(serde_json::to_value(reason).expect("JSON"), key(reason));
        }
    }
}
