//! Entries for GPUs that were simulated: the allocations of a CPU, dealt out by a model of the GPU's memory manager.

use super::{Measured, MeasuredOn, MeasurementMethod};

/// Prefix of such entries' names. A measurement on the GPU itself has the GPU's own name, so the two never collide.
const PREFIX: &str = "simulated-";

impl MeasuredOn {
    /// Returns true if steps were simulated for the device, rather than run on it.
    pub fn is_simulated(&self) -> bool {
        self.mode.values().any(|mode| mode.method == MeasurementMethod::Simulated)
    }
}

impl Measured {
    /// Name of the entry for steps that were simulated for the GPU of a profile.
    pub fn simulated_name(profile: &str) -> String {
        format!("{PREFIX}{profile}")
    }

    /// Profile that an entry of this name was simulated for.
    pub fn simulated_profile(name: &str) -> &str {
        name.strip_prefix(PREFIX).unwrap_or(name)
    }

    /// Describes the devices: `measured on cpu-2-cores, memory simulated for rtx4090`; `None` without any.
    pub fn describe(&self) -> Option<String> {
        let names = |is_simulated: bool| {
            let those = self.on.iter().filter(move |(_, on)| on.is_simulated() == is_simulated);
            those.map(|(name, _)| name.as_str())
        };
        let (run, simulated) = (names(false), names(true).map(Self::simulated_profile));
        let parts = [("measured on", run.collect::<Vec<_>>()), ("memory simulated for", simulated.collect())];
        let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<_> = parts.map(|(how, names)| format!("{how} {}", names.join(", "))).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
