//! `gpu-tuned.lock`: read and the same after it was written, or refused with places in the file.
#![no_main]

use gpu_tuned_core::source::Source;
use gpu_tuned_project::lock::Lock;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let parse = |text: &str| Lock::parse(Source { file: Lock::NAME, text });
    match parse(text) {
        Err(mistakes) => assert!(!mistakes.is_empty()),
        Ok(lock) => {
            let written = lock.to_toml();
            let again = parse(&written).unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{written}"));
            assert_eq!(again.to_toml(), written);
        }
    }
});
