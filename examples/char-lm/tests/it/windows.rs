//! Selection of the windows of an optimizer step.

use std::collections::HashSet;

use burn::tensor::Device;
use char_lm::windows::{Batch, Windows, adjacent, predicted};
use gpu_tuned::MicroBatch;

const LENGTH: usize = 8;
const PER_STEP: usize = 6;

#[test]
fn the_windows_of_an_epoch_do_not_overlap_and_lie_inside() {
    let ids = ids(1003);
    let windows = Windows::new(&ids, LENGTH, PER_STEP, 1).unwrap();
    assert_eq!(windows.steps_per_epoch(), 20);
    for epoch in 0..3 {
        let steps = (0..20).map(|index| windows.starts(epoch * 20 + index));
        let mut seen = HashSet::new();
        for start in steps.flatten() {
            assert!(start + LENGTH < ids.len(), "the last target of {start} is outside");
            assert!((start..start + LENGTH).all(|place| seen.insert(place)), "epoch {epoch}: {start} overlaps");
        }
        assert_eq!(seen.len(), 20 * PER_STEP * LENGTH);
    }
}

#[test]
fn the_windows_of_a_step_depend_on_seed_and_step_alone() {
    let ids = ids(1003);
    let windows = |seed| Windows::new(&ids, LENGTH, PER_STEP, seed).unwrap();
    let in_order: Vec<Vec<usize>> = (0..50).map(|step| windows(1).starts(step)).collect();
    let one = windows(1);
    for step in (0..50).rev() {
        assert_eq!(one.starts(step), in_order[step], "step {step}");
    }
    let distinct: HashSet<&Vec<usize>> = in_order.iter().collect();
    assert_eq!(distinct.len(), 50, "every step takes other windows");
    assert_ne!(windows(2).starts(0), in_order[0]);
}

#[test]
fn targets_are_one_character_further() {
    let ids = ids(1003);
    let windows = Windows::new(&ids, LENGTH, PER_STEP, 1).unwrap();
    let (inputs, targets) = read([windows.step(0, 0..PER_STEP)]);
    let expected: Vec<i64> = inputs.iter().map(|id| id + 1).collect();
    assert_eq!(targets, expected);
}

#[test]
fn an_evaluation_predicts_every_character_but_the_first_once() {
    // 4 windows of 8 and the last target; a fifth window is incomplete.
    for length in [33, 40] {
        let ids = ids(length);
        let batches: Vec<_> = adjacent(&ids, LENGTH, 3, &Device::flex()).unwrap().collect();
        assert_eq!(batches.iter().map(MicroBatch::len).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(read(batches), ((0..32).collect(), (1..33).collect()));
        assert_eq!(predicted(&ids, LENGTH), 32);
    }
}

/// A text with a character per position, equal to that position.
fn ids(length: u32) -> Vec<u32> {
    (0..length).collect()
}

fn read(batches: impl IntoIterator<Item = Batch>) -> (Vec<i64>, Vec<i64>) {
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for batch in batches {
        inputs.extend(batch.inputs.into_data().iter::<i64>());
        targets.extend(batch.targets.into_data().iter::<i64>());
    }
    (inputs, targets)
}
