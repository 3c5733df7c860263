//! Boards made from the profile table, written as scenario files and played by the fake library.

use fake_nvml::Scenario;
use gpu_tuned::{Bytes, GpuReading, Options};
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::profile::ProfileTable;
use proptest::prelude::*;

use super::generated::{boards, decide, look};

fn figures(reading: &GpuReading) -> (Option<&str>, Option<Bytes>, Option<Bytes>, Option<u32>) {
    (reading.name.as_deref(), reading.memory_total, reading.memory_free, reading.sm_count)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_board_of_the_table_is_read_as_it_is_and_recognised_exactly((profile, unit) in boards()) {
        let machine = look(&Scenario { gpu: vec![unit.clone()], ..Scenario::default() }, "generated-boards");
        prop_assert_eq!(machine.gpus.len(), 1, "{:?}", machine.trouble);
        let mib = |mib: Option<u64>| mib.map(Bytes::from_mib);
        let sm_count = profile.compute.sm_count.filter(|_| profile.compute.cuda_cores.is_some());
        let expected = (unit.name.as_deref(), mib(unit.memory_total_mib), mib(unit.memory_free_mib), sm_count);
        prop_assert_eq!(figures(&machine.gpus[0]), expected);
        let found = identify(&machine.gpus[0], &ProfileTable::default());
        prop_assert!(matches!(&found, Match::Exact { profile: it } if it.id == profile.id), "{found:?}");
        prop_assert!(decide(&Options::default(), &machine)?.is_none_or(|selection| selection.device() == Some(&found)));
    }
}
