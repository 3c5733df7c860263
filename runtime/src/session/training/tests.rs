use gpu_tuned_core::plan::Schedule;

use super::{few_for_statistics, short_epoch};

#[test]
fn a_last_step_with_a_small_micro_batch_is_warned_of_unless_it_is_left_out() {
    let schedule = Schedule { global_batch: 64, world_size: 1, share: None, micro_batch: 32, drop_last: false };
    let warned = |samples, schedule: &Schedule| few_for_statistics(samples, schedule).is_some();
    assert!(few_for_statistics(65, &schedule).is_some_and(|text| text.contains("of size 1,")));
    // 40 samples are 32 + 8; 48 are 32 + 16.
    assert!(warned(104, &schedule) && !warned(112, &schedule) && !warned(128, &schedule));
    assert!(!warned(65, &Schedule { drop_last: true, ..schedule }));
    // Ranks have 15 samples each, or none.
    let ranks = Schedule { world_size: 2, ..schedule };
    assert!(warned(64 + 30, &ranks) && !warned(64 + 32, &ranks) && !warned(65, &ranks));
}

#[test]
fn a_dataset_of_less_than_a_step_is_warned_of() {
    assert_eq!(short_epoch(512, 512, true), None);
    assert!(short_epoch(0, 512, false).is_some_and(|text| text.contains("is empty")));
    assert!(short_epoch(100, 512, false).is_some_and(|text| text.contains("one step over all")));
    assert!(short_epoch(100, 512, true).is_some_and(|text| text.contains("dropped")));
}
