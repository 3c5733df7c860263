//! The build helper's table for the attribute: read and the same after it was written, or refused.
#![no_main]

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_project::resolved::Resolved;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(read) = Resolved::from_toml(text) else { return };
    let again = Resolved::from_toml(&read.to_toml()).expect("what was read can be written");
    assert_eq!(again.to_toml(), read.to_toml());
    let facts = DeviceFacts::nominal(ProfileTable::builtin().get("h200").expect("a shipped profile"));
    for spec in read.workload.values() {
        if let Ok(plan) = plan(&facts, &read.workload(None, spec), &read.goal) {
            assert!(plan.memory.fits(), "{plan}");
        }
    }
});
