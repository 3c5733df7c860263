//! Stale measurements: taken with another release of Burn, or of a workload that changed.

use core::fmt;
use gpu_tuned_core::workload::{ModelSpec, WorkloadSpec};

use super::{Lock, SpecChange};
use crate::cargo_lock::CargoLock;

/// Measurements taken with another release of Burn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outdated {
    /// The workload's name.
    pub workload: String,
    /// The device's name.
    pub device: String,
    /// The measured release.
    pub burn: String,
    /// The releases in `Cargo.lock`.
    pub now: String,
}

/// A measured workload whose description changed afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierDescription<'a> {
    /// Name of the workload in the lock.
    pub name: &'a str,
    /// Changes since the measurement.
    pub changes: Vec<SpecChange>,
}

/// Formats one sentence, with the command to run.
impl fmt::Display for EarlierDescription<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<_> = self.changes.iter().map(ToString::to_string).collect();
        let (file, name) = (Lock::NAME, self.name);
        write!(f, "{file}: `{name}` was measured with {}: run `cargo gpu-tuned measure`", changes.join("; "))
    }
}

/// Formats one sentence, with the command to run.
impl fmt::Display for Outdated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.by(CargoLock::NAME))
    }
}

impl Outdated {
    /// Returns the message, with `cargo_lock` as the name of the `Cargo.lock`.
    pub fn by(&self, cargo_lock: &str) -> String {
        let Self { workload, device, burn, now } = self;
        format!(
            "{}: `{workload}` was measured on {device} with Burn {burn}, {cargo_lock} has {now}: its figures are left out, run \
             `cargo gpu-tuned measure`",
            Lock::NAME
        )
    }
}

impl Lock {
    /// Removes and returns measurements taken with other releases of Burn than those that `package` is built with.
    pub fn take_outdated(&mut self, cargo_lock: &CargoLock, package: &str) -> Vec<Outdated> {
        let mut taken = Vec::new();
        for (workload, entry) in &mut self.workload {
            entry.measured.on.retain(|device, on| {
                let Some(now) = cargo_lock.other_than(&on.burn, package, "burn") else { return true };
                taken.push(Outdated { workload: workload.clone(), device: device.clone(), burn: on.burn.clone(), now });
                false
            });
        }
        taken
    }

    /// Returns the measured description that preceded `spec`: the one of the entry `name`. Without a name, returns the one of
    /// the same kind of model with the fewest changes. `None` if `spec` itself was measured.
    pub fn measured_before(&self, name: Option<&str>, spec: &WorkloadSpec) -> Option<EarlierDescription<'_>> {
        if self.measured_for(name, spec, &[]).is_some() {
            return None;
        }
        // Declared costs do not identify a model.
        let has_dimensions = !matches!(spec.model, ModelSpec::Declared(_));
        let is_alike = |earlier: &WorkloadSpec| has_dimensions && spec.model.kind().name == earlier.model.kind().name;
        let is_meant =
            |before: &str, earlier: &WorkloadSpec| name.map_or_else(|| is_alike(earlier), |name| name == before);
        let described = self.workload.iter().filter_map(|(name, entry)| Some((name, entry.described.as_ref()?)));
        let meant = described.filter(|(name, earlier)| is_meant(name, earlier));
        let before =
            meant.map(|(name, earlier)| EarlierDescription { name, changes: SpecChange::between(earlier, spec) });
        before.min_by_key(|before| before.changes.len())
    }
}
