use std::ops::Range;

use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, proptest};

use super::{LEAST_RESIDUAL, Piece, Sample, Seconds, Selected, ladder, left_out, refined, select, time_residual};
use crate::Bytes;
use crate::measured::{Curve, Known};

/// What the transformer of 27 M parameters reserves on an H200 in f32: 11, 10, 9 and 8 pages as large as its logits.
const TRANSFORMER: [(u64, f64); 27] = [
    (4, 827.0),
    (6, 1179.0),
    (8, 1402.0),
    (12, 2042.0),
    (16, 2425.0),
    (20, 3001.0),
    (24, 3577.0),
    (32, 4729.0),
    (40, 5881.0),
    (48, 7033.0),
    (56, 8185.0),
    (64, 9337.0),
    (80, 11643.0),
    (96, 13947.0),
    (112, 16251.0),
    (128, 18555.0),
    (144, 18554.0),
    (160, 20602.0),
    (192, 24698.0),
    (224, 28794.0),
    (256, 32890.0),
    (288, 36986.0),
    (320, 41082.0),
    (384, 49274.0),
    (416, 53370.0),
    (448, 57466.0),
    (512, 65658.0),
];

pub(super) fn sample(batch: u64, mib: f64) -> Sample {
    Sample { batch, reserved: Bytes((mib * 1_048_576.0) as u64), in_use: None, held: None, seconds: None }
}

fn said(samples: &[Sample], pieces: &[Piece], batch: u64) -> f64 {
    let piece = pieces.iter().rfind(|piece| piece.from <= batch).unwrap_or(&pieces[0]);
    let kept = samples.iter().find(|sample| sample.batch == piece.batch).expect("points are samples");
    let apart = batch.max(piece.from) as f64 - piece.batch as f64;
    kept.reserved.0 as f64 + piece.per_sample.0 as f64 * apart
}

const GIB: f64 = 1_073_741_824.0;

/// The largest error.
fn largest_error(samples: &[Sample], pieces: &[Piece]) -> f64 {
    let error = |sample: &Sample| {
        let there = sample.reserved.0 as f64;
        (said(samples, pieces, sample.batch) - there).abs() / there
    };
    samples.iter().map(error).fold(0.0, f64::max)
}

/// The least largest error of pieces that begin at any `most` samples, with any of a thousand slopes each.
fn by_brute_force(samples: &[Sample], most: usize) -> f64 {
    let steepest = samples.iter().map(|sample| sample.reserved.0).max().unwrap_or(0) / 500;
    let mut least = f64::INFINITY;
    for choice in (1_u32..1 << samples.len()).filter(|choice| choice.count_ones() as usize <= most) {
        let chosen: Vec<usize> = (0..samples.len()).filter(|at| choice >> at & 1 == 1).collect();
        let mut largest: f64 = 0.0;
        for (index, &from) in chosen.iter().enumerate() {
            let begin = if index == 0 { 0 } else { from };
            let to = chosen.get(index + 1).copied().unwrap_or(samples.len());
            let of = |slope: u64| {
                let (batch, per_sample) = (samples[from].batch, Bytes(slope * steepest / 1000));
                let piece = [Piece { batch, from: batch, per_sample, residual: 0.0 }];
                let part = &samples[begin..to];
                let error = |sample: &Sample| {
                    let there = sample.reserved.0 as f64;
                    (said(samples, &piece, sample.batch) - there).abs() / there
                };
                part.iter().map(error).fold(0.0, f64::max)
            };
            largest = largest.max((0..=1000).map(of).fold(f64::INFINITY, f64::min));
        }
        least = least.min(largest);
    }
    least
}

/// What a plan takes a micro-batch to reserve at most.
pub(super) fn bound(samples: &[Sample], pieces: &[Piece], batch: u64) -> f64 {
    let curve = curve(samples, pieces);
    let piece = pieces.iter().find(|piece| piece.batch == curve.point(batch)).expect("points are of pieces");
    curve.at(batch) + piece.residual * curve.at(batch).max(GIB) + curve.next_above(batch)
}

/// What plans read of pieces.
pub(super) fn curve(samples: &[Sample], pieces: &[Piece]) -> Curve {
    let known = |piece: &Piece| {
        let sample = samples.iter().find(|sample| sample.batch == piece.batch).expect("points are samples");
        let (figure, slope) = (sample.reserved.0 as f64, Some(piece.per_sample.0 as f64));
        Known { batch: piece.batch, figure, slope, from: Some(piece.from) }
    };
    Curve::along(pieces.iter().map(known)).expect("there are pieces")
}

/// Micro-batches of samples, ascending, and numbers of pages with the micro-batches from which on they are so many.
fn any_pages() -> impl Strategy<Value = (Vec<u64>, Vec<(u64, u64)>)> {
    prop::collection::vec((2_u64..40, 0.0..1.0_f64, 5_u64..12), 2..9).prop_map(|gaps| {
        let (mut batches, mut changes) = (vec![1], Vec::new());
        for (gap, at, pages) in gaps {
            let last = batches[batches.len() - 1];
            changes.push((last + 1 + (at * (gap - 1) as f64) as u64, pages));
            batches.push(last + gap);
        }
        (batches, changes)
    })
}

/// Of micro-batches less than 40 apart from each other, from one of these on.
fn any_samples(first: Range<u64>) -> impl Strategy<Value = Vec<Sample>> {
    (first, prop::collection::vec((1_u64..40, 1024.0..8000.0_f64), 1..7)).prop_map(|(first, points)| {
        let mut next = first;
        let sample = |(step, mib): (u64, f64)| {
            let batch = next;
            next += step;
            sample(batch, mib)
        };
        points.into_iter().map(sample).collect()
    })
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(256))]

    /// Of samples of which none is four times the one before: over wider gaps lines lead on to what was tried next, whatever
    /// they err by before it.
    #[test]
    fn no_other_choice_errs_less(samples in any_samples(14..40), most in 1_usize..4) {
        let pieces = select(&samples, most, None).pieces;
        prop_assert!((1..=most).contains(&pieces.len()));
        let (found, least) = (largest_error(&samples, &pieces), by_brute_force(&samples, most));
        // What errs half a percent more is as good.
        prop_assert!(found <= least + 0.005 + 1e-6, "{found} and {least}: {pieces:?}");
    }

    #[test]
    fn no_sample_lies_above_its_piece_by_more_than_the_residual(samples in any_samples(1..40), most in 1_usize..4) {
        let pieces = select(&samples, most, None).pieces;
        prop_assert!(pieces.iter().all(|piece| piece.from <= piece.batch));
        prop_assert!(pieces.windows(2).all(|pair| pair[0].batch < pair[1].from));
        for sample in &samples {
            let piece = pieces.iter().rfind(|piece| piece.from <= sample.batch);
            if let Some(piece) = piece {
                let said = said(&samples, &pieces, sample.batch);
                let bound = said + piece.residual * said.max(GIB);
                prop_assert!(sample.reserved.0 as f64 <= bound + 1.0, "{sample:?} {piece:?}");
            }
        }
    }

    /// Pages of a tensor that grows with the micro-batch, and weights beside them; the number of pages changes at any
    /// micro-batch, but between two samples once at most.
    #[test]
    fn nothing_lies_above_the_bound_wherever_the_number_of_pages_changes(
        (batches, pages) in any_pages(),
        page in 1.0..400.0_f64,
        weights in 0.0..4000.0_f64,
        most in 1_usize..5,
    ) {
        let pages = |batch: u64| pages.iter().rfind(|(from, _)| *from <= batch).map_or(8, |(_, pages)| *pages) as f64;
        let reserved = |batch: u64| weights + pages(batch) * page * batch as f64;
        let in_use = |batch: u64| Some(Bytes(((weights + 5.0 * page * batch as f64) * 1_048_576.0) as u64));
        let samples: Vec<Sample> =
            batches.iter().map(|batch| Sample { in_use: in_use(*batch), ..sample(*batch, reserved(*batch)) }).collect();
        let pieces = select(&samples, most, None).pieces;
        for batch in batches[0]..=batches[batches.len() - 1] {
            let (reserved, bound) = (reserved(batch) * 1_048_576.0, bound(&samples, &pieces, batch));
            prop_assert!(reserved <= bound * (1.0 + 1e-6), "{batch}: {reserved} of {bound}: {pieces:?}");
        }
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
fn four_pieces_know_the_memory_of_a_transformer_at_batches_that_were_never_tried() {
    let at = |batch: u64| TRANSFORMER.iter().find(|(known, _)| *known == batch).map(|(_, mib)| sample(batch, *mib));
    let mut tried: Vec<Sample> = ladder(512).into_iter().filter_map(at).collect();
    // The eighth page goes between 128 and 144: found by halving, as far as there are batches here.
    while let Some(next) = refined(&tried, Bytes(u64::MAX), |_| true).and_then(at) {
        tried.push(next);
        tried.sort_by_key(|sample| sample.batch);
    }
    let pieces = select(&tried, 4, None).pieces;
    assert!(pieces.iter().any(|piece| (129..=144).contains(&piece.from)), "{pieces:?}");
    let unknown =
        TRANSFORMER.iter().filter(|(batch, _)| *batch >= 16 && tried.iter().all(|known| known.batch != *batch));
    let unknown: Vec<_> = unknown.collect();
    assert!(unknown.len() >= 8, "{tried:?}");
    for (batch, mib) in unknown {
        let error = said(&tried, &pieces, *batch) / (mib * 1_048_576.0) - 1.0;
        assert!(error.abs() < 0.005, "{batch}: {error} {pieces:?}");
    }
}

#[test]
fn what_was_not_seen_is_looked_at_though_nothing_seems_to_change() {
    let in_use = |batch: u64| Some(Bytes::from_mib(8 * batch));
    let alike = |batch: u64| Sample { in_use: in_use(batch), ..sample(batch, 16.0 * batch as f64) };
    assert_eq!(refined(&[16, 24, 32, 128, 160].map(alike), Bytes(u64::MAX), |_| true), Some(80));
    // A fifth more is not worth it, nor are a few samples.
    assert_eq!(refined(&[1, 8, 15, 16, 19, 22].map(alike), Bytes(u64::MAX), |_| true), None);
    // Nor is what reserves too much, but for one between two that do not.
    assert_eq!(refined(&[16, 19, 128].map(alike), Bytes::from_mib(16 * 19), |_| true), None);
    let more = Sample { reserved: Bytes::from_mib(9000), ..alike(64) };
    assert_eq!(refined(&[alike(16), more, alike(128)], Bytes::from_mib(16 * 128), |_| true), Some(96));
}

/// What a ResNet-18 reserves on an H200 in f32, with the times of powers of two: points stand where times matter, and small
/// steps are told of nevertheless.
#[test]
fn small_steps_count_for_where_the_first_line_begins() {
    let small =
        [(1, 264.4), (4, 284.4), (8, 368.4), (16, 444.4), (32, 733.4), (48, 907.4)].map(|(b, mib)| sample(b, mib));
    let large =
        [(64, 1126.0, 23.8), (128, 1988.4, 26.3), (256, 3902.4, 50.0), (512, 7680.0, 101.8)].map(|(b, mib, ms)| {
            Sample { seconds: Some(Seconds { micro_step: ms / 1e3, optimizer: 0.002 }), ..sample(b, mib) }
        });
    let tried: Vec<Sample> = small.into_iter().chain(large).collect();
    let pieces = select(&tried, 4, Some(512)).pieces;
    for small in &small[3..] {
        let error = said(&tried, &pieces, small.batch) / small.reserved.0 as f64 - 1.0;
        assert!(error.abs() < 0.15, "{}: {error} {pieces:?}", small.batch);
    }
}

#[test]
fn of_choices_that_err_as_little_the_even_one_is_taken() {
    let samples: Vec<_> = ladder(512).into_iter().map(|batch| sample(batch, 100.0 + 7.0 * batch as f64)).collect();
    let pieces = select(&samples, 4, None).pieces;
    let batches: Vec<u64> = pieces.iter().map(|piece| piece.batch).collect();
    // Five gaps from 1 to 512: each about 3.5.
    let ends = [1].into_iter().chain(batches.iter().copied()).chain([512]).collect::<Vec<_>>();
    assert!(batches.len() == 4 && ends.windows(2).all(|pair| pair[1] <= 4 * pair[0]), "{batches:?}");
    assert!(pieces.iter().all(|piece| piece.residual < 0.0021));
    assert_eq!(select(&[], 4, None), Selected::default());
}

#[test]
fn what_lines_miss_shows_by_leaving_samples_out() {
    let samples = [sample(1, 10.0), sample(2, 30.0), sample(3, 30.0), sample(5, 30.0)];
    // At batch 2 the line says 20; at batch 3 it is right.
    assert!((left_out(&samples).expect("four samples") - 0.5).abs() < 1e-6);
    assert_eq!(left_out(&samples[1..]), Some(LEAST_RESIDUAL));
    assert_eq!(left_out(&samples[2..]), None);
}

/// Samples along one line, timed at the powers of two.
fn timed(batches: &[u64], seconds: impl Fn(u64) -> f64) -> Vec<Sample> {
    let known = |batch: u64| Seconds { micro_step: seconds(batch), optimizer: 0.001 };
    let at = |batch: &u64| Sample {
        seconds: batch.is_power_of_two().then(|| known(*batch)),
        ..sample(*batch, 2000.0 + 9.0 * *batch as f64)
    };
    batches.iter().map(at).collect()
}

fn kept(samples: &[Sample], most: usize, global: Option<u64>) -> Vec<u64> {
    select(samples, most, global).batches
}

#[test]
fn the_smallest_good_batch_is_kept_and_the_fastest() {
    // Launches take 13 ms until 64 samples; from 256 on it becomes slower.
    let samples = timed(&ladder(1024), |batch| {
        let batch = batch as f64;
        f64::max(0.013, batch * 1.6e-4) * (1.0 + 0.1 * (batch / 256.0 - 1.0).max(0.0))
    });
    let found = kept(&samples, 4, Some(1024));
    assert!(found.contains(&128), "{found:?}");
    // Where nearly all is as fast, the fastest is another one.
    let samples = timed(&ladder(1024), |batch| 1e-4 + 1e-4 * batch as f64);
    let found = kept(&samples, 4, Some(1024));
    assert!(found.contains(&64) && found.contains(&1024), "{found:?}");
}

#[test]
fn what_a_step_adds_up_to_decides_on_the_knee() {
    // An optimizer as long as sixteen samples: alone they are hardly worth it, as parts of a step they are.
    let at = |batch: u64| Sample {
        seconds: Some(Seconds { micro_step: 1e-3 * batch as f64, optimizer: 0.016 }),
        ..sample(batch, 2000.0 + 9.0 * batch as f64)
    };
    let samples: Vec<Sample> = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].map(at).to_vec();
    assert!(kept(&samples, 1, Some(4096)).contains(&1));
    assert_eq!(kept(&samples, 1, None), [512]);
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(24))]

    #[test]
    fn no_other_choice_of_times_errs_less(speeds in prop::collection::vec(1.0..1.2_f64, 9), most in 2_usize..5) {
        let powers: Vec<u64> = (0..9).map(|power| 1 << power).collect();
        let seconds = |batch: u64| batch as f64 / (100.0 * speeds[batch.ilog2() as usize]);
        let samples = timed(&powers, seconds);
        let found = kept(&samples, most, Some(256));
        let rate = |batch: u64| 256.0 / (256.0 / batch as f64 * seconds(batch) + 0.001);
        let fastest = powers.iter().copied().max_by(|a, b| rate(*a).total_cmp(&rate(*b))).expect("nine");
        let knee = powers.iter().copied().find(|batch| rate(*batch) >= 0.98 * rate(fastest)).expect("one");
        prop_assert!(found.contains(&knee) && found.contains(&fastest), "{found:?}: {knee} {fastest}");
        // All are nearly as fast, so all count; every choice with both, by lines drawn by hand.
        let errors = |kept: &[u64], from: u64| -> Vec<f64> {
            let said = |batch: u64| {
                let after = kept.iter().position(|known| *known >= batch);
                let pair = match after {
                    Some(0) => return seconds(kept[0]) * batch as f64 / kept[0] as f64,
                    Some(after) => [kept[after - 1], kept[after]],
                    None => {
                        let slope = |pair: &[u64]| (seconds(pair[1]) - seconds(pair[0])) / (pair[1] - pair[0]) as f64;
                        let last = kept[kept.len() - 1];
                        let steepest = kept.windows(2).map(slope).reduce(f64::max).unwrap_or(seconds(last) / last as f64);
                        return seconds(last) + (batch - last) as f64 * steepest;
                    }
                };
                let share = (batch - pair[0]) as f64 / (pair[1] - pair[0]) as f64;
                seconds(pair[0]) * (1.0 - share) + seconds(pair[1]) * share
            };
            // Below the first of them only the next one tells of lines.
            let told = powers.iter().filter(|batch| **batch >= from);
            told.map(|batch| said(*batch) / seconds(*batch) - 1.0).collect()
        };
        let error = |kept: &[u64]| errors(kept, kept[0] / 2).into_iter().map(f64::abs).fold(0.0, f64::max);
        let choices = (1_u32..512).filter(|choice| choice.count_ones() as usize <= most);
        let least = choices.map(|choice| powers.iter().copied().filter(|power| choice & *power as u32 != 0).collect());
        let least = least.filter(|kept: &Vec<u64>| kept.contains(&knee) && kept.contains(&fastest));
        // What is smaller than all that are kept is known least.
        let against = |kept: &[u64]| (kept[0] > 1, error(kept).max(0.01));
        let least = least.map(|kept| against(&kept)).min_by(|a, b| a.partial_cmp(b).expect("numbers")).expect("one");
        let found_against = against(&found);
        prop_assert_eq!(found_against.0, least.0, "{:?}", found);
        prop_assert!(found_against.1 <= least.1 + 1e-9, "{found:?}: {found_against:?} and {least:?}");
        let residual = time_residual(&samples, &found, Some(256)).unwrap_or(0.0);
        let slower = errors(&found, found[0]).into_iter().map(|error| -error).fold(0.0, f64::max);
        prop_assert!((residual - slower).abs() < 1e-9, "{residual} and {slower}");
    }
}

#[test]
fn of_many_samples_the_jumps_are_seen() {
    let pages = |batch: u64| if batch < 148 { 9.0 } else { 8.0 };
    let at = |batch: u64| sample(batch, 16.0 * batch as f64 * pages(batch));
    let mut batches = ladder(512);
    batches
        .extend([130, 136, 140, 144, 146, 147, 148, 150, 154, 160, 170, 200, 210, 220, 230, 300, 330, 340, 410, 460]);
    batches.sort_unstable();
    batches.dedup();
    let samples: Vec<Sample> = batches.into_iter().map(at).collect();
    let pieces = select(&samples, 4, None).pieces;
    assert!(pieces.iter().any(|piece| piece.from == 148), "{pieces:?}");
    assert!(largest_error(&samples, &pieces) < 0.001, "{pieces:?}");
}
