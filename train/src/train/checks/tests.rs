use gpu_tuned_core::Provenance::{Derived, Measured};
use gpu_tuned_core::plan::Schedule;

use super::{StepSizeCheck, another_model, describe_other_halves, undeclared_statistics};

#[test]
fn losses_that_are_not_the_mean_of_their_halves_are_warned_of() {
    let warning = |whole, halves| describe_other_halves(whole, halves, 1e-3, 8);
    for (whole, halves) in [
        (2.5, [(2.0, 4.0), (3.0, 4.0)]),
        // By targets: 6 x 2 and 2 x 4.
        (2.5, [(2.0, 6.0), (4.0, 2.0)]),
        // Nothing in a half.
        (2.0, [(2.0, 6.0), (0.0, 0.0)]),
        (f64::NAN, [(2.0, 4.0), (3.0, 4.0)]),
        (0.0, [(0.0, 4.0), (0.0, 4.0)]),
    ] {
        assert_eq!(warning(whole, halves), None);
    }
    let sum = warning(5.0, [(2.0, 4.0), (3.0, 4.0)]).expect("a sum");
    assert!(sum.contains("is 5.0000") && sum.contains("halves is 2.5000") && sum.contains("`.mean()`"), "{sum}");
    let other = warning(6.58, [(5.64, 4.0), (5.60, 4.0)]).expect("a contrastive loss");
    assert!(other.contains("whole_batch_loss"), "{other}");
}

#[test]
fn undeclared_batch_norms_are_warned_of_if_a_step_is_cut_into_small_parts() {
    let warning = |global_batch, micro_batch| {
        let (world_size, share, drop_last) = (1, None, false);
        undeclared_statistics(&Schedule { global_batch, world_size, share, micro_batch, drop_last })
    };
    assert!(warning(64, 8).is_some_and(|text| text.contains("of 8 samples")));
    for (step, micro_batch) in [(8, 8), (64, 16), (512, 128)] {
        assert_eq!(warning(step, micro_batch), None);
    }
}

#[test]
fn a_measured_count_must_match_and_a_description_may_be_off_by_a_tenth() {
    for (planned, trained, reported) in [
        ((1000, Derived), 1100, None),
        ((1000, Derived), 1101, Some("mend the description")),
        ((1000, Measured), 1000, None),
        ((1000, Measured), 999, Some("cargo gpu-tuned measure")),
    ] {
        let text = another_model(planned, trained);
        assert!(text.is_some() == reported.is_some(), "{text:?}");
        assert!(text.unwrap_or_default().contains(reported.unwrap_or_default()));
    }
}

#[test]
fn two_micro_batches_in_a_row_are_warned_of_once() {
    let warnings = |step, given: &[usize]| {
        let mut watched = StepSizeCheck { step, micro_batch: 16, suspicious: 0 };
        given.iter().filter_map(|samples| watched.warning(*samples)).collect::<Vec<_>>()
    };
    let reported = warnings(512, &[16, 16, 16, 16, 16]);
    assert!(
        matches!(&reported[..], [text] if text.contains("given 16 samples") && text.contains("512 make a step")),
        "{reported:?}"
    );
    // The last step of an epoch, sequences by their tokens, and a step that is one micro-batch.
    for (step, given) in [(512, &[512, 16, 512, 16][..]), (512, &[15, 17, 15, 17]), (16, &[16, 16, 16])] {
        assert!(warnings(step, given).is_empty(), "{given:?}");
    }
}
