//! Contradictions in and between the shipped profiles, so that a typing error in a figure is found.

use std::collections::BTreeMap;

use gpu_tuned_core::device::PciId;
use gpu_tuned_core::profile::{Profile, ProfileId, Strictness, faults};

/// Finds figures that are out of range or contradict each other, and PCI ids that profiles share without a mark.
pub(crate) fn mistakes(profiles: &[Profile]) -> Vec<String> {
    let gpus = || profiles.iter().filter(|profile| profile.id.as_str() != ProfileId::GENERIC);
    let of_each = gpus().flat_map(|profile| {
        let found = faults(profile, Strictness::Shipped);
        found.into_iter().map(|fault| format!("{}: {fault}", profile.id)).collect::<Vec<_>>()
    });
    of_each.chain(unmarked_ids(profiles)).collect()
}

/// Shared PCI ids that are not marked in both profiles.
fn unmarked_ids(profiles: &[Profile]) -> Vec<String> {
    let mut owners: BTreeMap<PciId, Vec<&ProfileId>> = BTreeMap::new();
    for profile in profiles {
        for id in &profile.pci_ids {
            owners.entry(*id).or_default().push(&profile.id);
        }
    }
    let mut found = Vec::new();
    for profile in profiles {
        let others = profile.pci_ids.iter().flat_map(|id| &owners[id]).filter(|id| **id != &profile.id);
        let mut others: Vec<ProfileId> = others.map(|id| (*id).clone()).collect();
        others.sort();
        others.dedup();
        if others != profile.pci_ids_shared_with {
            let marked = &profile.pci_ids_shared_with;
            found.push(format!("{}: pci_ids_shared_with: {others:?} have such an id, not {marked:?}", profile.id));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::mistakes;
    use crate::profiles;

    #[test]
    fn an_unmarked_id_is_found_and_shipped_profiles_have_no_mistakes() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let mut table = profiles::files(root).expect("profiles");
        assert_eq!(mistakes(&table), [""; 0]);
        let a2 = table.iter_mut().find(|profile| profile.id.as_str() == "a2").expect("shipped");
        a2.pci_ids_shared_with.clear();
        let found = mistakes(&table);
        assert!(found.len() == 1 && found[0].starts_with("a2: pci_ids_shared_with: "), "{found:?}");
    }
}
