//! Lines of `bench`'s results: collected, or refused one by one.
#![no_main]

use gpu_tuned_observe::bench::{Line, Sections};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let record = Sections::from_lines(text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()));
    if let Some(section) = record.last() {
        assert_eq!(record.section(&section.header), Some(section));
    }
});
