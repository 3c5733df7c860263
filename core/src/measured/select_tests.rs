use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};

use super::{Kept, LEAST_RESIDUAL, Sample, ladder, left_out, select};
use crate::Bytes;

fn sample(batch: u64, mib: f64, micro_step_ms: Option<f64>) -> Sample {
    Sample { batch, reserved: Bytes((mib * 1_048_576.0) as u64), micro_step_ms }
}

/// Every choice of at most `most` samples, the errors worked out anew at every batch.
fn by_brute_force(samples: &[Sample], most: usize) -> f64 {
    let run: Vec<usize> = (0..samples.len()).filter(|at| samples[*at].micro_step_ms.is_some()).collect();
    let mut least = f64::INFINITY;
    for choice in 1_u32..1 << samples.len() {
        let kept: Vec<usize> = (0..samples.len()).filter(|at| choice >> at & 1 == 1).collect();
        let has_ends = kept[0] == 0 && kept[kept.len() - 1] == samples.len() - 1;
        let has_last_run = run.last().is_none_or(|at| kept.contains(at));
        let was_run = |at: &usize| *at == 0 || run.last().is_none_or(|last| at > last) || run.contains(at);
        if kept.len() <= most && has_ends && has_last_run && kept.iter().all(was_run) {
            least = least.min(largest_error(samples, &kept));
        }
    }
    least
}

fn largest_error(samples: &[Sample], kept: &[usize]) -> f64 {
    let mut largest: f64 = 0.0;
    for at in (0..samples.len()).filter(|at| !kept.contains(at)) {
        let (a, b) = (*kept.iter().rfind(|end| **end < at).unwrap(), *kept.iter().find(|end| **end > at).unwrap());
        let line = |of: &dyn Fn(&Sample) -> Option<f64>| {
            let (x, x0, x1) = (samples[at].batch as f64, samples[a].batch as f64, samples[b].batch as f64);
            let (y, y0, y1) = (of(&samples[at])?, of(&samples[a])?, of(&samples[b])?);
            Some(((y0 * (x1 - x) + y1 * (x - x0)) / (x1 - x0) / y - 1.0).abs())
        };
        let memory = line(&|sample| Some(sample.reserved.0 as f64)).unwrap();
        largest = largest.max(memory).max(line(&|sample| sample.micro_step_ms).unwrap_or(0.0));
    }
    largest
}

fn chosen(samples: &[Sample], kept: &Kept) -> Vec<usize> {
    (0..samples.len()).filter(|at| kept.batches.contains(&samples[*at].batch)).collect()
}

fn any_samples() -> impl Strategy<Value = Vec<Sample>> {
    let point = (1_u64..40, 1.0..4000.0_f64, any::<bool>(), 0.5..200.0_f64);
    (prop::collection::vec(point, 1..11), any::<prop::sample::Index>()).prop_map(|(points, fitting)| {
        let fitting = fitting.index(points.len() + 1);
        let mut batch = 0;
        let sample = |(at, (step, mib, run, ms)): (usize, (u64, f64, bool, f64))| {
            batch += step;
            sample(batch, mib, (at < fitting && (run || at == 0)).then_some(ms))
        };
        points.into_iter().enumerate().map(sample).collect()
    })
}

proptest! {
    #[test]
    fn no_other_choice_errs_less(samples in any_samples(), most in 3_usize..6) {
        let kept = select(&samples, most);
        prop_assert!(kept.batches.len() <= most);
        let (found, least) = (largest_error(&samples, &chosen(&samples, &kept)), by_brute_force(&samples, most));
        prop_assert!((found - least).abs() <= 1e-9 * least.max(1.0), "{found} and {least}: {kept:?}");
    }

    #[test]
    fn a_ladder_rises_from_one_to_the_largest(largest in 1_u64..1 << 50) {
        let batches = ladder(largest);
        prop_assert!(batches.len() <= 20 && batches.is_sorted_by(|a, b| a < b));
        prop_assert_eq!((batches[0], batches[batches.len() - 1]), (1, largest));
    }
}

#[test]
fn a_ladder_has_two_rungs_for_every_doubling() {
    assert_eq!(ladder(1), [1]);
    assert_eq!(ladder(25), [1, 2, 3, 4, 6, 8, 12, 16, 24, 25]);
    assert_eq!(ladder(64), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
    assert_eq!(ladder(2048)[..4], [1, 2, 4, 8]);
}

#[test]
fn a_straight_line_is_known_exactly() {
    let samples: Vec<_> =
        ladder(512).into_iter().map(|batch| sample(batch, 100.0 + 7.0 * batch as f64, None)).collect();
    let kept = select(&samples, 4);
    assert!((kept.residual - LEAST_RESIDUAL).abs() < 1e-12, "{kept:?}");
    assert_eq!((kept.batches[0], kept.batches.last()), (1, Some(&512)));
}

// Pages of 512 MiB from batch 32 on, none before.
#[test]
fn a_bend_is_kept_and_what_is_left_is_the_residual() {
    let mib = |batch: u64| if batch < 32 { 100.0 + batch as f64 } else { 1000.0 + 50.0 * batch as f64 };
    let samples: Vec<_> = ladder(256).into_iter().map(|batch| sample(batch, mib(batch), None)).collect();
    let kept = select(&samples, 4);
    assert_eq!(kept.batches, [1, 24, 32, 256]);
    assert!((kept.residual - LEAST_RESIDUAL).abs() < 1e-12, "{kept:?}");
    let fewer = select(&samples, 3);
    assert!(fewer.residual > 0.1, "{fewer:?}");
}

#[test]
fn the_largest_batch_that_was_run_is_kept_and_time_counts() {
    let ms = |batch: u64| (batch <= 64 && batch.is_power_of_two()).then(|| 10.0_f64.max(batch as f64));
    let samples: Vec<_> = ladder(256).into_iter().map(|batch| sample(batch, 50.0 + batch as f64, ms(batch))).collect();
    let kept = select(&samples, 4);
    assert_eq!(kept.batches, [1, 8, 64, 256]);
}

#[test]
fn few_samples_are_all_kept() {
    assert_eq!(select(&[], 4).batches, [0; 0]);
    assert_eq!(select(&[sample(3, 1.0, None)], 4).batches, [3]);
    let two = [sample(3, 1.0, None), sample(5, 9.0, Some(1.0))];
    assert_eq!(select(&two, 4).batches, [3, 5]);
}

#[test]
fn what_lines_miss_shows_by_leaving_samples_out() {
    let samples = [sample(1, 10.0, None), sample(2, 30.0, None), sample(3, 30.0, None), sample(5, 30.0, None)];
    // At batch 2 the line says 20; at batch 3 it is right.
    assert!((left_out(&samples).expect("four samples") - 0.5).abs() < 1e-6);
    assert_eq!(left_out(&samples[1..]), Some(LEAST_RESIDUAL));
    let less = [sample(1, 10.0, None), sample(2, 15.0, None), sample(3, 30.0, None)];
    assert_eq!(left_out(&less), Some(LEAST_RESIDUAL));
    assert_eq!(left_out(&samples[2..]), None);
}
