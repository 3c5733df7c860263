//! Micro-batches of models with batch statistics.

use super::*;
use crate::workload::{Block, Convnet, Declared, Stage, Unet};

/// A network on images of 512 pixels, whose speed hardly depends on the micro-batch.
fn convnet() -> Convnet {
    let stages = [[64, 2], [128, 2]].map(Stage::from).into();
    Convnet { image: 512, classes: 10, stages, batch_statistics: true, ..Convnet::default() }
}

fn with_gib(gib: u64) -> DeviceFacts {
    with_free("rtx3060-12gb", gib << 10)
}

#[test]
fn where_sixteen_samples_do_not_fit_no_micro_batch_has_more_than_the_planned_one() {
    let (workload, device) = (convnet().workload(), with_gib(3));
    let least = |plan: &Plan| plan.schedule.micro_batches().min().expect("a step has samples");
    let planned = least(&planned(&device, &workload, &global(64)));
    assert!(planned < 16, "{planned}");
    for batch in 1..=64 {
        let pins = Pins { batch_size: Some(batch), ..Pins::default() };
        if let Ok(other) = plan(&device, &workload, &Goal { pins, ..global(64) }) {
            assert!(least(&other) <= planned, "{other}");
        }
    }
}

#[test]
fn micro_batches_have_samples_for_their_statistics() {
    let (batch, group) = (convnet().workload(), Convnet { batch_statistics: false, ..convnet() }.workload());
    let h200 = || nominal("h200");
    let plain = Goal { pins: Pins { gradient_checkpointing: Some(false), ..Pins::default() }, ..global(64) };
    let sizes = |gib: u64| planned(&with_gib(gib), &batch, &global(64)).schedule.micro_batches().min();
    let tight = (3..24).find(|gib| sizes(*gib) >= Some(16)).expect("16 samples fit somewhere");
    let ragged = Goal { pins: Pins { batch_size: Some(33), ..Pins::default() }, ..global(67) };
    assert_plans(
        "statistics",
        vec![
            ("32 samples are preferred", h200(), batch.clone(), global(64)),
            ("group norm takes fewer", h200(), group, global(64)),
            ("the micro-batch is the step", h200(), batch.clone(), Goal::default()),
            ("checkpointing makes room for 16 samples, at 4% of the speed", with_gib(tight), batch.clone(), global(64)),
            ("without it fewer fit, and are faster", with_gib(tight), batch.clone(), plain),
            ("16 samples do not fit: advice", with_gib(3), batch.clone(), global(64)),
            ("8 samples on each rank: advice", h200(), batch.clone(), Goal { world_size: 8, ..global(64) }),
            ("67 samples are 34 + 33, not 2 x 33 + 1", with_gib(40), batch.clone(), global(67)),
            ("the last has 1 sample: advice", h200(), batch, ragged),
        ],
    );
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
