//! Saved plans of resumed runs: read with figures in range, or refused.
#![no_main]

use std::fs;
use std::sync::LazyLock;

use gpu_tuned::SavedRun;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir_in("/dev/shm").expect("a folder"));

fuzz_target!(|bytes: &[u8]| {
    fs::write(FOLDER.path().join(SavedRun::FILE_NAME), bytes).expect("a file");
    match SavedRun::load(FOLDER.path()) {
        Ok(Some(run)) => {
            let schedule = &run.schedule;
            assert_eq!(schedule.samples_per_rank() * schedule.world_size, schedule.global_batch);
        }
        Ok(None) => panic!("the file is there"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
