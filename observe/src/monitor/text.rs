//! Words for what is seen.

use crate::recording::Throttle;

/// The key of a reason for lower clocks, as recordings spell it.
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
    use crate::recording::Throttle;

    #[test]
    fn keys_are_those_of_recordings() {
        let all = [
            Throttle::PowerCap,
            Throttle::PowerBrake,
            Throttle::ThermalSoftware,
            Throttle::ThermalHardware,
            Throttle::Hardware,
            Throttle::SyncBoost,
            Throttle::Unknown,
        ];
        for reason in all {
            assert_eq!(serde_json::to_value(reason).expect("it is JSON"), super::key(reason));
        }
    }
}
