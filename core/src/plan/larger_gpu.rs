//! Search for the smallest GPU that fits a workload.

use core::cmp::Reverse;

use super::fits;
use super::least::Least;
use super::misfit::Remedy;
use crate::Goal;
use crate::device::{DeviceFacts, ProductLine};
use crate::profile::{Profile, ProfileId, ProfileTable};
use crate::workload::Workload;

/// Returns the smallest shipped GPU that fits the workload: one of the device's kind, else a board for desktops or
/// workstations, else one for data centers.
pub(super) fn larger_gpu(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Remedy {
    let shipped = ProfileTable::builtin();
    let own = device.profile.as_deref().and_then(|id| shipped.get(id)).map(Kind::new);
    let preferences = [own.as_slice(), &[Kind::Desktop, Kind::Workstation], &[Kind::DataCenter]];
    let smallest = |kinds: &[Kind]| {
        let gpus = shipped.iter().filter(|profile| is_sold(profile) && kinds.contains(&Kind::new(profile)));
        let fitting = gpus.map(|profile| (profile, DeviceFacts::nominal(profile)));
        let fitting = fitting.filter(|(_, facts)| fits(facts, workload, goal));
        // The newest of the smallest.
        let order = |(profile, _): &(&Profile, _)| (profile.memory.nominal_mib, Reverse(profile.compute_capability));
        fitting.min_by_key(order).map(|(_, facts)| facts)
    };
    let smallest = preferences.into_iter().find_map(smallest);
    // Memory on that GPU: kernels take more on one with more multiprocessors.
    let facts = smallest.as_ref().unwrap_or(device);
    let least = goal.in_samples(workload).and_then(|goal| Least::find(facts, workload, &goal, None));
    let least = least.map(|least| least.memory.total()).unwrap_or_default();
    let needed = least.scaled(1.0 / (1.0 - facts.headroom_share(goal.memory_headroom)));
    Remedy::LargerGpu { needed, profile: smallest.map(|facts| facts.name) }
}

/// Beginnings of the ids of GPUs that are sold in China alone.
const EXPORTS: [&str; 8] = ["a800-", "h20-", "h800-", "l2", "rtx4090-d", "rtx5090-d", "rtx5880-", "rtx6000d"];

/// Returns true for a GPU that most users can buy or rent, and that Burn trains on.
fn is_sold(profile: &Profile) -> bool {
    let id = profile.id.as_str();
    let is_product =
        id != ProfileId::GENERIC && !profile.modified && !EXPORTS.iter().any(|start| id.starts_with(start));
    is_product && profile.compute_capability.refusal().is_none()
}

/// Machine that a GPU is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Desktop,
    Laptop,
    Workstation,
    DataCenter,
    /// Jetson modules, and others that share the host's memory.
    Integrated,
}

impl Kind {
    fn new(profile: &Profile) -> Self {
        let name = profile.names.first().map_or("", String::as_str);
        match ProductLine::new(Some(name), profile.compute_capability) {
            Some(ProductLine::Laptop) => Self::Laptop,
            Some(ProductLine::Integrated) => Self::Integrated,
            Some(ProductLine::GeForce) => Self::Desktop,
            _ if name.contains("Server") => Self::DataCenter,
            _ if ["RTX", "Quadro"].iter().any(|word| name.contains(word)) => Self::Workstation,
            _ => Self::DataCenter,
        }
    }
}
