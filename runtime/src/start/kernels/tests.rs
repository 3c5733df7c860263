use gpu_tuned_core::Kernels;

use super::other_measurement;
use crate::Fallback;

#[test]
fn the_library_is_not_measured_by_burns_kernels_in_its_place() {
    let missing = [Fallback::Kernels { because: "cuBLASLt was not found".to_owned() }];
    assert_eq!(other_measurement(Some(Kernels::Library), &missing), Some("cuBLASLt was not found"));
    // A program that falls back by itself is measured as it trains.
    assert_eq!([None, Some(Kernels::Burn)].map(|pinned| other_measurement(pinned, &missing)), [None; 2]);
    assert_eq!(other_measurement(Some(Kernels::Library), &[]), None);
}
