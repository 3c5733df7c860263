//! `gpu-tuned.toml`: read and planned, or refused with places in the file.
#![no_main]

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan;
use gpu_tuned_core::source::Source;
use gpu_tuned_project::config::ConfigFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let lines = text.split('\n').count();
    match ConfigFile::parse(Source { file: ConfigFile::NAME, text }) {
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            assert!(mistakes.iter().all(|mistake| mistake.place.line <= lines && !mistake.to_string().is_empty()));
        }
        Ok(file) => {
            for workload in file.workloads.values().map(|spec| spec.workload()) {
                for profile in file.profiles.iter().take(4) {
                    if let Ok(plan) = plan(&DeviceFacts::nominal(profile), &workload, &file.goal) {
                        assert!(plan.memory.fits() && plan.samples_per_s > 0.0, "{plan}");
                    }
                }
            }
        }
    }
});
