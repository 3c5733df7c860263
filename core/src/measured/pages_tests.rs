use super::{InPages, Pages, Seen};
use crate::Bytes;
use proptest::prelude::*;

/// What steps held on an H200: the micro-batch, all of it in MiB, pages of small allocations, others, their size in MiB and the
/// largest allocation for each sample in KiB. Burn 0.22.1, CubeCL 0.11.3.
type Held = (u64, f64, u64, u64, u64, u64);

const LSTM: [Held; 4] =
    [(80, 217.3, 1, 34, 6, 60), (160, 398.3, 1, 35, 11, 60), (224, 553.3, 1, 36, 15, 60), (320, 753.3, 1, 37, 20, 60)];

const RESNET: [Held; 5] = [
    (40, 779.4, 1, 6, 101, 2560),
    (80, 1455.4, 1, 6, 201, 2560),
    (160, 2433.4, 1, 5, 401, 2560),
    (224, 3377.4, 1, 5, 561, 2560),
    (320, 4702.4, 1, 5, 801, 2560),
];

fn seen((batch, mib, small_pages, pages, page_mib, largest): Held) -> Seen {
    let held = InPages {
        small_pages,
        pages,
        page_bytes: Bytes::from_mib(page_mib),
        largest_bytes: Bytes(largest * 1024 * batch),
    };
    Seen { batch, reserved: Bytes((mib * 1_048_576.0) as u64), held }
}

/// How far off a batch is when all others were seen, by pages and by a straight line between those beside it, in percent.
fn off(all: &[Held], left_out: usize) -> [f64; 2] {
    let others: Vec<Seen> =
        all.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, held)| seen(*held)).collect();
    let (batch, mib, ..) = all[left_out];
    let (before, after) = (&all[left_out - 1], &all[left_out + 1]);
    let pages = Pages::of(&others, before.0).expect("the largest allocation grows in a straight line");
    let by_pages = before.1 + pages.more(before.0, batch) / 1_048_576.0;
    let way = (batch - before.0) as f64 / (after.0 - before.0) as f64;
    [by_pages, before.1 + way * (after.1 - before.1)].map(|said| ((said / mib - 1.0) * 100.0).abs())
}

#[test]
fn pages_tell_what_straight_lines_do_not() {
    for (all, left_out) in [(&LSTM[..], 1), (&RESNET, 3)] {
        let [pages, line] = off(all, left_out);
        assert!(pages < 0.75 && line > 1.0, "batch {}: {pages:.2}% and {line:.2}%", all[left_out].0);
    }
}

#[test]
fn pages_as_large_as_nothing_that_grows_tell_nothing() {
    let mut all = LSTM.map(seen);
    all[2].held.page_bytes = Bytes::from_mib(16);
    assert_eq!(Pages::of(&all, 160), None);
    assert_eq!(Pages::of(&all[..1], 80), None);
}

proptest! {
    /// What is needed and the largest allocation are lines; pages follow as `CubeCL` has them.
    #[test]
    fn what_was_counted_is_said(
        batches in prop::collection::btree_set(1_u64..2000, 2..12),
        largest in 1_000_u64..4_000_000,
        needed in (0_u64..200 << 20, 1_u64..60),
        small in (0_u64..50 << 20, 0_u64..500_000),
        others in (0_u64..100 << 20, 0_u64..1 << 20),
    ) {
        const MIB: u64 = 1 << 20;
        let all: Vec<Seen> = batches.iter().map(|&batch| {
            let largest_bytes = largest * batch;
            let page = if largest_bytes <= 2 * MIB { 2 * MIB } else { (largest_bytes + MIB).next_multiple_of(MIB) };
            let (pages, small_pages) =
                ((needed.0 + needed.1 * largest_bytes).div_ceil(page), (small.0 + small.1 * batch).div_ceil(8 * MIB));
            let reserved = Bytes(pages * page + small_pages * 8 * MIB + others.0 + others.1 * batch);
            let held = InPages { small_pages, pages, page_bytes: Bytes(page), largest_bytes: Bytes(largest_bytes) };
            Seen { batch, reserved, held }
        }).collect();
        let point = all[0];
        let pages = Pages::of(&all, point.batch).expect("they follow the largest allocation");
        let room = pages.room(&all, point.batch);
        for seen in &all {
            let said = |more: f64| more - (seen.reserved.0 as f64 - point.reserved.0 as f64);
            prop_assert!(said(pages.more(point.batch, seen.batch)).abs() < 2000.0, "{seen:?}: {pages:?}");
            // Nor is there room for a page more.
            prop_assert!(said(pages.more_with(room, point.batch, seen.batch)).abs() < 2000.0, "{seen:?}: {room:?}");
        }
    }
}
