//! Expected speed and memory of micro-batches.

use super::*;
use crate::plan::{Expected, curve};

fn workload() -> Workload {
    Transformer::new(6, 512, 8192, 256).workload()
}

fn device(gib: u64) -> DeviceFacts {
    with_free("rtx4090", gib << 10)
}

#[test]
fn it_has_the_plan_in_it_and_goes_on_beyond_the_step() {
    let (device, workload) = (device(22), workload());
    let planned = planned(&device, &workload, &global(48));
    let curve = curve(&device, &workload, &global(48)).unwrap();
    let settings = planned.settings;
    let same = curve.iter().find(|expected| {
        (expected.batch, expected.checkpointing) == (settings.batch_size, settings.gradient_checkpointing)
    });
    let same = same.expect("the plan is one of them");
    assert!((same.samples_per_s - planned.samples_per_s).abs() < 1e-9 && same.fits);
    assert_eq!(same.memory_bytes, planned.memory.total().0);
    assert!(curve.iter().any(|expected| expected.batch > 48 && expected.fits), "beyond the step");
    assert!(curve.iter().any(|expected| !expected.fits), "and beyond the memory");
    assert!(curve.len() < 100, "{}", curve.len());
    assert!(curve.is_sorted_by_key(|expected| (expected.batch, expected.checkpointing)));
}

#[test]
fn memory_that_others_hold_does_not_shorten_it() {
    let goal = global(256);
    let (free, held) = (device(23), device(6));
    let last = |device| *curve(device, &workload(), &goal).unwrap().iter().map(|it| &it.batch).max().unwrap();
    assert_eq!(last(&free), last(&held));
    let curve = curve(&held, &workload(), &goal).unwrap();
    let within = |expected: &&Expected| expected.memory_bytes < free.memory_available.0;
    assert!(curve.iter().filter(within).any(|expected| !expected.fits), "{curve:#?}");
}

#[test]
fn it_ends_with_tensors_that_no_memory_makes_room_for() {
    let logits = Transformer::new(1, 64, 128 << 10, 1024).workload();
    let curve = curve(&device(22), &logits, &global(256)).unwrap();
    let (last, before) = curve.split_last().expect("points");
    assert!(last.in_no_piece && !last.fits, "{curve:#?}");
    assert!(before.iter().any(|expected| expected.fits) && before.iter().all(|expected| !expected.in_no_piece));
}

#[test]
fn what_is_fixed_does_not_shorten_it() {
    let mut goal = global(64);
    let free = curve(&device(22), &workload(), &goal).unwrap();
    goal.pins.batch_size = Some(2);
    assert_eq!(curve(&device(22), &workload(), &goal).unwrap(), free);
}

#[test]
fn where_nothing_fits_it_says_so() {
    let curve = curve(&device(0), &workload(), &Goal::default()).unwrap();
    assert!(!curve.is_empty() && curve.iter().all(|expected| !expected.fits));
}
