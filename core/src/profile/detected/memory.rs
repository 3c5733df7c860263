//! Advertised memory of a GPU, from its reported totals.

use crate::profile::validate::WIDEST_WITHOUT_HBM;

/// The advertised size in MiB of a GPU with this total. Drivers keep up to an eighth of it (ECC, firmware).
///
/// Memory chips have 32 bits of the bus and multiples of 512 MiB. HBM has a wider bus and sizes in GiB. A GPU that shares
/// the host's memory has a power of two.
pub(super) fn nominal_mib(total_mib: u64, bus_bits: Option<u32>, is_unified: bool) -> u64 {
    let chips = bus_bits.filter(|bits| *bits <= WIDEST_WITHOUT_HBM).map_or(0, |bits| u64::from(bits) / 32);
    let is_near = |nominal: &u64| total_mib * 8 >= nominal * 7;
    let by_chips = (chips > 0).then(|| total_mib.next_multiple_of(chips * 512)).filter(is_near);
    let by_gib = || Some(total_mib.next_multiple_of(1024)).filter(is_near);
    if is_unified {
        return total_mib.checked_next_power_of_two().filter(is_near).or_else(by_gib).unwrap_or(total_mib);
    }
    by_chips.or_else(by_gib).unwrap_or(total_mib)
}

#[cfg(test)]
mod tests {
    use super::nominal_mib;
    use crate::profile::ProfileTable;

    #[test]
    fn every_total_of_a_profile_gives_the_advertised_memory() {
        for profile in ProfileTable::builtin().iter() {
            let memory = &profile.memory;
            let is_unified = profile.compute_capability.is_integrated();
            for total in &memory.nvml_total_mib {
                let found = nominal_mib(*total, memory.bus_bits, is_unified);
                let ratio = found as f64 / memory.nominal_mib as f64;
                assert!((0.95..=1.05).contains(&ratio), "{}: {total} MiB gives {found}", profile.id);
            }
        }
    }

    #[test]
    fn an_odd_total_is_never_far_below_the_advertised_memory() {
        for (total, bus, is_unified, nominal) in [
            (8193, Some(256), false, 9216),
            (15360, Some(256), false, 16384),
            (143_771, Some(6144), false, 144_384),
            (122_572, None, true, 131_072),
            (3500, None, false, 3500),
            (100, Some(0), false, 100),
        ] {
            let found = nominal_mib(total, bus, is_unified);
            assert_eq!(found, nominal, "{total} {bus:?}");
        }
    }
}
