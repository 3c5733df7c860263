use std::collections::BTreeMap;

use super::super::{Sample, Seconds, Selected, refined, select};
use super::Laws;
use crate::Bytes;
use crate::measured::{InPages, Measured, MeasuredMode, Point, Reserved, Way};

const LSTM: &str = include_str!("held/lstm.txt");
const RESNET: &str = include_str!("held/resnet.txt");
const LSTM_ON_H100: &str = include_str!("held/lstm-h100.txt");
const RESNET_ON_H100: &str = include_str!("held/resnet-h100.txt");

/// What plans add for pages of small allocations, in bytes.
const SMALL_PAGES: f64 = 25_165_824.0;

/// What steps hold by the micro-batch.
fn held(text: &str) -> BTreeMap<u64, Sample> {
    let sample = |line: &str| {
        let figures: Vec<u64> = line.split(' ').map(|figure| figure.parse().expect("a figure")).collect();
        let [batch, reserved, small_pages, pages, page_mib, largest] = figures[..] else { panic!("{line}") };
        let (page_bytes, largest_bytes) = (Bytes::from_mib(page_mib), Bytes(largest));
        let held = Some(InPages { small_pages, pages, page_bytes, largest_bytes });
        (batch, Sample { batch, reserved: Bytes(reserved), in_use: Some(Bytes(reserved)), held, seconds: None })
    };
    text.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

/// The first tries, and so many in all as are chosen one by one; the last two are timed.
fn tried(held: &BTreeMap<u64, Sample>, first: &[u64], count: usize) -> Vec<Sample> {
    let mut tried: Vec<Sample> = first.iter().map(|batch| held[batch]).collect();
    while tried.len() < count {
        let Some(batch) = refined(&tried, Bytes(u64::MAX), |_| true) else { break };
        tried.insert(tried.partition_point(|sample| sample.batch < batch), held[&batch]);
    }
    timed(tried)
}

/// The same with times of the large ones.
fn timed(mut tried: Vec<Sample>) -> Vec<Sample> {
    for sample in tried.iter_mut().filter(|sample| sample.batch >= 256 && sample.batch.is_power_of_two()) {
        sample.seconds = Some(Seconds { micro_step: sample.batch as f64, optimizer: 1.0 });
    }
    tried
}

/// What plans read of what was tried.
fn reserved(tried: &[Sample]) -> (Selected, Reserved) {
    let selected = select(tried, Measured::MOST_POINTS, Some(512));
    let point = |batch: &u64| {
        let sample = tried.iter().find(|sample| sample.batch == *batch).expect("what is kept was tried");
        (*batch, Point { reserved_bytes: Some(sample.reserved), ..Point::default() })
    };
    let batch = selected.batches.iter().map(point).collect();
    let pages = selected.pages.clone();
    let mode = MeasuredMode { way: Way::DryRun, residual: None, time_residual: None, pages, batch };
    (selected, Reserved::of(&mode).expect("there are points"))
}

/// By how much more than this share what is said is off, from 24 samples on, as a share of all that were not tried.
fn off(held: &BTreeMap<u64, Sample>, tried: &[Sample], said: impl Fn(u64) -> f64, by: f64) -> f64 {
    let others = held.values().filter(|sample| sample.batch >= 24 && !tried.contains(sample));
    let errors: Vec<f64> = others.map(|sample| (said(sample.batch) / sample.reserved.0 as f64 - 1.0).abs()).collect();
    errors.iter().filter(|error| **error > by).count() as f64 / errors.len() as f64
}

/// On the line between the two tries beside.
fn on_a_line(tried: &[Sample], batch: u64) -> f64 {
    let after = tried.partition_point(|sample| sample.batch < batch).clamp(1, tried.len() - 1);
    let [from, to] = [after - 1, after].map(|at| (tried[at].batch as f64, tried[at].reserved.0 as f64));
    from.1 + (to.1 - from.1) * (batch as f64 - from.0) / (to.0 - from.0)
}

#[test]
fn few_tries_tell_what_a_network_holds_at_all_other_batches() {
    for (text, first, most) in [(LSTM, &[1, 128, 256, 512][..], 0.1), (RESNET, &[1, 16, 32, 64, 128, 256, 512], 0.04)] {
        let held = held(text);
        for count in [10, 14] {
            let tried = tried(&held, first, count);
            let (selected, reserved) = reserved(&tried);
            let batches: Vec<u64> = tried.iter().map(|sample| sample.batch).collect();
            assert!(tried.len() == count && selected.batches.len() <= 4 && selected.pieces.is_empty(), "{batches:?}");
            let by_pages = off(&held, &tried, |batch| reserved.at(batch), 0.02);
            let by_lines = off(&held, &tried, |batch| on_a_line(&tried, batch), 0.02);
            assert!(by_pages <= most && by_pages < by_lines / 2.0, "{by_pages} and {by_lines} of {batches:?}");
        }
    }
}

#[test]
fn what_a_gpu_held_at_some_batches_tells_what_it_held_at_others() {
    // By the locks of those dry runs 5 and 3 were: the one took all pages for filled, the other one law for all but two batches.
    for (text, most) in [(LSTM_ON_H100, 1), (RESNET_ON_H100, 0)] {
        let of =
            |kind: &str| held(&text.lines().filter_map(|line| line.strip_prefix(kind)).collect::<Vec<_>>().join("\n"));
        let (mut all, mut off) = (0, 0);
        for mode in ["plain", "checkpointed"] {
            let (tried, others) = (of(&format!("{mode} dry ")), of(&format!("{mode} executed ")));
            let (_, reserved) = reserved(&timed(tried.into_values().collect()));
            for sample in others.values() {
                let (said, observed) = (reserved.at(sample.batch), sample.reserved.0 as f64);
                all += 1;
                off += u32::from((said / observed - 1.0).abs() > 0.02);
                assert!(
                    observed <= said + reserved.open(sample.batch) + SMALL_PAGES,
                    "{mode}: {sample:?}, {said} said"
                );
            }
        }
        assert_eq!((all, off), (12, most));
    }
}

#[test]
fn nothing_that_was_not_tried_is_held_beyond_the_bound() {
    for (text, first) in [(LSTM, &[1, 128, 256, 512][..]), (RESNET, &[1, 16, 32, 64, 128, 256, 512])] {
        let held = held(text);
        let (_, reserved) = reserved(&tried(&held, first, 12));
        for sample in held.range(24..).map(|(_, sample)| sample) {
            let said = reserved.at(sample.batch);
            let residual = reserved.residual(sample.batch).unwrap_or(0.0) * said.max(1_073_741_824.0);
            let bound =
                said + reserved.open(sample.batch) + reserved.beside_above(sample.batch) + residual + SMALL_PAGES;
            assert!(sample.reserved.0 as f64 <= bound, "{sample:?} is held, {bound} at most");
            assert!(bound < 1.6 * sample.reserved.0 as f64, "{sample:?} is held, {bound} at most");
        }
    }
}

#[test]
fn where_small_allocations_outgrow_their_pages_another_law_begins() {
    let held = held(LSTM);
    let tried = tried(&held, &[1, 128, 256, 512], 10);
    // The last batch with rows of 64 KiB, and the first with larger ones.
    let batches: Vec<u64> = tried.iter().map(|sample| sample.batch).collect();
    assert!(batches.contains(&64) && batches.contains(&65), "{batches:?}");
    let (selected, _) = reserved(&tried);
    assert_eq!(selected.pages.keys().copied().collect::<Vec<_>>(), [1, 65]);
}

#[test]
fn only_what_is_worth_it_is_tried() {
    let held = held(LSTM);
    let next = |tried: &[u64], is_worth: fn(u64) -> bool| {
        let tried: Vec<Sample> = tried.iter().map(|batch| held[batch]).collect();
        refined(&tried, Bytes(u64::MAX), is_worth)
    };
    // Small allocations are too large for their pages behind 64.
    assert_eq!(next(&[1, 32, 128, 512], |_| true), Some(64));
    let is_tuned = |batch: u64| [32, 128, 512].contains(&batch.next_power_of_two());
    assert_eq!(next(&[1, 32, 128, 512], is_tuned), Some(65));
    let others = next(&[1, 32, 64, 65, 128, 512], is_tuned).expect("much is open");
    assert!(is_tuned(others), "{others}");
    assert_eq!(next(&[1, 32, 128, 512], |_| false), None);
}

#[test]
fn what_follows_no_law_is_left_out_of_them_and_found_above() {
    let held = held(RESNET);
    let mut tried: Vec<Sample> = [64, 128, 256, 512].map(|batch| held[&batch]).to_vec();
    let laws = Laws::of(&tried).expect("pages were counted");
    assert_eq!(laws.count(), 1);
    // Pages of another size than the largest allocation has.
    let odd = InPages { page_bytes: Bytes::from_mib(90), ..tried[0].held.expect("counted") };
    tried[0] = Sample { held: Some(odd), reserved: tried[0].reserved.scaled(2.0), ..tried[0] };
    let pages = Laws::of(&tried).expect("pages were counted").pages();
    assert_eq!(pages.keys().copied().collect::<Vec<_>>(), [65]);
    assert!(pages[&65].residual > 0.2, "{pages:?}");
    // Where they were not counted, lines tell.
    tried[1].held = None;
    assert!(Laws::of(&tried).is_none());
    let selected = select(&tried, Measured::MOST_POINTS, None);
    assert!(selected.pages.is_empty() && selected.pieces.len() == selected.batches.len());
}
