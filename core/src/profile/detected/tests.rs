use super::*;
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

#[test]
fn figures_have_three_digits_at_least() {
    let rounded = [9.996, 10.04, 82.58, 1.234, 0.5].map(rounded);
    assert_eq!(rounded.map(|value| value.to_string()), ["10", "10", "82.6", "1.23", "0.5"]);
}
