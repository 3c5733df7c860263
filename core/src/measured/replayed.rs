//! Entries for GPUs that nobody measured: what their memory manager would make of the allocations of a CPU.

use super::{Measured, MeasuredOn, Way};

/// What the names of such entries begin with. They never take the place of a measurement: that has the GPU's own name.
const PREFIX: &str = "replayed-";

impl MeasuredOn {
    /// Whether steps were replayed for the device, rather than run on it.
    pub fn is_replayed(&self) -> bool {
        self.mode.values().any(|mode| mode.way == Way::Replayed)
    }
}

impl Measured {
    /// The name of the entry for steps that were replayed for the GPU of a profile.
    pub fn replayed_name(profile: &str) -> String {
        format!("{PREFIX}{profile}")
    }

    /// The profile that an entry of this name was replayed for.
    pub fn replayed_for(name: &str) -> &str {
        name.strip_prefix(PREFIX).unwrap_or(name)
    }

    /// On which devices: `measured on cpu-2-cores, memory replayed for rtx4090`; `None` without any.
    pub fn in_words(&self) -> Option<String> {
        let names = |is_replayed: bool| {
            let those = self.on.iter().filter(move |(_, on)| on.is_replayed() == is_replayed);
            those.map(|(name, _)| name.as_str())
        };
        let (run, replayed) = (names(false), names(true).map(Self::replayed_for));
        let said = [("measured on", run.collect::<Vec<_>>()), ("memory replayed for", replayed.collect())];
        let said = said.into_iter().filter(|(_, names)| !names.is_empty());
        let said: Vec<_> = said.map(|(how, names)| format!("{how} {}", names.join(", "))).collect();
        (!said.is_empty()).then(|| said.join(", "))
    }
}
