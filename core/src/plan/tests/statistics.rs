//! Micro-batches of models with batch statistics.

use super::*;
use crate::plan::Verdict;
use crate::workload::{Block, Convnet, Declared, Stage, Unet};

/// A network on images of 512 pixels, whose speed hardly depends on the micro-batch.
fn convnet() -> Convnet {
    let stages = [[64, 2], [128, 2]].map(Stage::from).into();
    Convnet { image: 512, classes: 10, stages, batch_statistics: true, ..Convnet::default() }
}

fn with_gib(gib: u64) -> DeviceFacts {
    with_free("rtx3060-12gb", gib << 10)
}

fn advice_on_statistics(plan: &Plan) -> Option<&String> {
    plan.advice.iter().find(|advice| advice.starts_with("the smallest micro-batch has size"))
}

#[test]
fn the_largest_micro_batch_of_up_to_32_samples_is_preferred_and_the_dependence_noted() {
    let (batch, group) = (convnet().workload(), Convnet { batch_statistics: false, ..convnet() }.workload());
    // Samples take 40 ms each, and launches 5 ms a micro-batch.
    let device = nominal("h200");
    let (with, without) = (planned(&device, &batch, &global(64)), planned(&device, &group, &global(64)));
    assert!(without.settings.batch_size < 32 && with.settings.batch_size == 32, "{with}\n{without}");
    assert!(with.memory.fits() && with.schedule.micro_batches().all(|size| size == with.settings.batch_size));
    let why = &with.reasons[0].why;
    assert!(why.ends_with("; batch statistics: another one changes the results"), "{why}");
    assert!(!without.reasons[0].why.contains("statistics"), "{}", without.reasons[0].why);
    // Without a global batch the micro-batch is the step: no whole step is to be approached.
    let free = planned(&device, &batch, &Goal::default());
    assert!(free.settings.batch_size < 1024 && free.settings.batch_size >= 16, "{free}");
}

#[test]
fn micro_batches_of_sixteen_samples_are_worth_their_time() {
    let workload = convnet().workload();
    let sizes = |gib: u64| planned(&with_gib(gib), &workload, &global(64)).schedule.micro_batches().min();
    let speed = |gib: u64| planned(&with_gib(gib), &workload, &global(64)).samples_per_s;
    let plain = Goal { pins: Pins { gradient_checkpointing: Some(false), ..Pins::default() }, ..global(64) };
    // Checkpointing makes room for 16 samples, at 4% of the speed.
    let tight = (3..24).find(|gib| sizes(*gib) >= Some(16)).expect("16 samples fit somewhere");
    let taken = planned(&with_gib(tight), &workload, &global(64));
    assert!(taken.settings.gradient_checkpointing && advice_on_statistics(&taken).is_none(), "{taken}");
    let fast = planned(&with_gib(tight), &workload, &plain);
    assert!(fast.schedule.micro_batches().min() < Some(16) && fast.samples_per_s > speed(tight), "{fast}");
    let explained = explain(&with_gib(tight), &workload, &global(64)).expect("it fits");
    let fewer = explained.considered.iter().filter(|one| one.verdict == Verdict::FewerSamples);
    assert!(fewer.clone().count() > 0 && fewer.clone().all(|one| one.batch_size < 16), "{:?}", explained.considered);
}

#[test]
fn where_sixteen_samples_do_not_fit_the_most_that_fit_are_taken_with_advice() {
    let workload = convnet().workload();
    let device = with_gib(3);
    let taken = planned(&device, &workload, &global(64));
    let least = taken.schedule.micro_batches().min().expect("a step has samples");
    assert!(least < 16, "{taken}");
    for batch in 1..=64 {
        let pins = Pins { batch_size: Some(batch), ..Pins::default() };
        if let Ok(other) = plan(&device, &workload, &Goal { pins, ..global(64) }) {
            assert!(other.schedule.micro_batches().min() <= Some(least), "{other}");
        }
    }
    let advice = advice_on_statistics(&taken).expect("advice");
    assert!(
        advice.contains(&format!("has size {least}, and batch statistics from fewer than 16 samples"))
            && advice.contains("group norm")
    );
    assert!(advice.contains("larger GPU"), "{advice}");
    let small = planned(&nominal("h200"), &workload, &Goal { world_size: 8, ..global(64) });
    assert_eq!(small.settings.batch_size, 8);
    assert!(advice_on_statistics(&small).is_some_and(|advice| advice.ends_with("more samples a step on each rank")));
}

#[test]
fn a_small_last_micro_batch_counts() {
    // 67 samples are 2 x 33 + 1, or 34 + 33.
    let taken = planned(&with_gib(40), &convnet().workload(), &global(67));
    assert!(taken.schedule.micro_batches().min() >= Some(16), "{taken}");
    let pins = Pins { batch_size: Some(33), ..Pins::default() };
    let ragged = planned(&nominal("h200"), &convnet().workload(), &Goal { pins, ..global(67) });
    let advice = advice_on_statistics(&ragged).expect("the last has one sample");
    assert!(advice.contains("has size 1,"), "{advice}");
}

#[test]
fn measured_sizes_with_too_few_samples_do_not_limit_the_statistics() {
    let at = |batch: u64| {
        let measured = point(batch * 200 + 500, 5.0 + 10.0 * batch as f64);
        (batch, MeasuredBatch { optimizer_ms: Some(1.0), ..measured })
    };
    let batch = |sizes: &[u64]| {
        let modes = [(f32(false), dry_run(sizes.iter().copied().map(at)))];
        let workload = measured_on("h200", convnet().workload(), modes);
        planned(&nominal("h200"), &workload, &global(64)).settings.batch_size
    };
    assert_eq!(batch(&[8, 16, 32]), 32);
    assert!(batch(&[4, 8]) >= 16);
}

#[test]
fn one_value_a_channel_needs_two_samples() {
    let image = |image: u64| {
        let stages = [[8, 1], [8, 1], [8, 1]].map(Stage::from).into();
        Convnet { image, classes: 10, stages, block: Block::Basic, batch_statistics: true, ..Convnet::default() }
            .workload()
    };
    // Two stages halve the image.
    assert_eq!([8, 4].map(|side| image(side).statistics_pixels), [Some(4), Some(1)]);
    assert_eq!([8, 4].map(|side| image(side).least_micro_batch()), [1, 2]);
    let unet = Unet { image: 16, classes: 2, widths: vec![8; 5], batch_statistics: true, ..Unet::default() };
    assert_eq!(unet.workload().least_micro_batch(), 2);
    let norm = Unet { batch_statistics: false, ..unet }.workload();
    assert_eq!((norm.statistics_pixels, norm.least_micro_batch()), (None, 1));
    let declared = Declared { batch_statistics: true, ..Declared::default() }.workload();
    assert_eq!((declared.statistics_pixels, declared.least_micro_batch()), (None, 1));

    let pinned = |batch| Goal { pins: Pins { batch_size: Some(batch), ..Pins::default() }, ..global(65) };
    for goal in [global(1), Goal { world_size: 8, ..global(8) }, pinned(1), pinned(32)] {
        assert!(plan(&nominal("h200"), &image(8), &goal).is_ok());
        let error = plan(&nominal("h200"), &image(4), &goal).expect_err("a micro-batch has one sample");
        assert!(matches!(&error, PlanError::Goal { message } if message.contains("group norm")), "{error}");
    }
    let taken = planned(&nominal("h200"), &image(4), &global(65));
    assert!(taken.schedule.micro_batches().min() >= Some(2), "{taken}");
}
