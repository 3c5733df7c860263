//! Measurements that are no longer of what would be built.

use core::fmt;
use gpu_tuned_core::workload::{ModelSpec, SpecChange, WorkloadSpec};

use super::Lock;
use crate::cargo_lock::CargoLock;

/// What was measured with another release of Burn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outdated {
    /// The workload's name.
    pub workload: String,
    /// The device's name.
    pub device: String,
    /// The release that was measured.
    pub burn: String,
    /// What `Cargo.lock` has.
    pub now: String,
}

/// A workload that was measured and is described in another way now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before<'a> {
    /// Its name in the file.
    pub name: &'a str,
    /// What was changed.
    pub changes: Vec<SpecChange>,
}

/// One sentence, with the command that mends it.
impl fmt::Display for Before<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<_> = self.changes.iter().map(ToString::to_string).collect();
        let (file, name) = (Lock::NAME, self.name);
        write!(f, "{file}: `{name}` was measured with {}: run `cargo gpu-tuned measure`", changes.join("; "))
    }
}

/// One sentence, with the command that mends it.
impl fmt::Display for Outdated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.by(CargoLock::NAME))
    }
}

impl Outdated {
    /// The same, with what the `Cargo.lock` is to be called.
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
    /// Takes out what was measured with other releases of Burn than those that `package` is built with.
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

    /// What was measured of a workload before it was changed to `spec`, of which nothing was measured since: the entry
    /// `name`; without a name that of a model of the same kind with the fewest changes.
    pub fn measured_before(&self, name: Option<&str>, spec: &WorkloadSpec) -> Option<Before<'_>> {
        if self.measured_for(name, spec, &[]).is_some() {
            return None;
        }
        // Declared costs say too little of what they are of.
        let has_dimensions = !matches!(spec.model, ModelSpec::Declared(_));
        let is_alike = |earlier: &WorkloadSpec| has_dimensions && spec.model.kind().name == earlier.model.kind().name;
        let is_meant =
            |before: &str, earlier: &WorkloadSpec| name.map_or_else(|| is_alike(earlier), |name| name == before);
        let described = self.workload.iter().filter_map(|(name, entry)| Some((name, entry.described.as_ref()?)));
        let meant = described.filter(|(name, earlier)| is_meant(name, earlier));
        let before = meant.map(|(name, earlier)| Before { name, changes: spec.changes_since(earlier) });
        before.min_by_key(|before| before.changes.len())
    }
}
