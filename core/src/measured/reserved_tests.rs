use super::Reserved;
use crate::Bytes;
use crate::measured::{Between, MeasuredMode, Need, Pages, Point, Way};

const MIB: f64 = 1_048_576.0;

/// So many MiB are needed of pages of 100, from one micro-batch to another, and 50 are in none.
fn pages(from: u64, to: u64, mib: (u64, u64)) -> Pages {
    let need = |batch| Between { batch, least: Bytes::from_mib(mib.0), most: Bytes::from_mib(mib.1) };
    Pages {
        largest_bytes: Bytes::from_mib(99),
        needed: Need { few: need(from), best: need(from), many: need(to) },
        other_bytes: [(from, Bytes::from_mib(50))].into(),
        ..Pages::default()
    }
}

/// A point at 64, 1000 MiB; 3 pages from 1 on, counted up to 20, and 8 or 9 from 31 on, counted from 40 to 128.
fn mode() -> MeasuredMode {
    let point = Point { reserved_bytes: Some(Bytes::from_mib(1000)), ..Point::default() };
    let pages = [(1, pages(1, 20, (250, 280))), (31, pages(40, 128, (780, 820)))].into();
    MeasuredMode { way: Way::DryRun, residual: None, time_residual: None, pages, batch: [(64, point)].into() }
}

#[test]
fn points_count_as_they_are_and_pages_beside_them() {
    let reserved = Reserved::of(&mode()).expect("a point");
    let mib = |batch| (reserved.at(batch) / MIB).round() as u64;
    assert_eq!([1, 20, 30, 64].map(mib), [350, 350, 350, 1000]);
    assert_eq!([31, 100, 200].map(mib), [850, 850, 850]);
    let open = |batch| (reserved.open(batch) / MIB).round() as u64;
    assert_eq!([10, 64, 100].map(open), [0, 0, 100]);
    assert_eq!(reserved.pages(64), None);
    assert_eq!(reserved.pages(100).map(|held| held.map(|held| held.pages)), Some([8, 9]));
    assert_eq!(mode().reserved(100), Some(Bytes::from_mib(850)));
}

#[test]
fn between_two_laws_either_may_hold() {
    let reserved = Reserved::of(&mode()).expect("a point");
    let above = |batch| (reserved.beside_above(batch) / MIB).round() as u64;
    // Up to 20 and from 40 on it was counted; between them 9 pages may be held where 3 are said.
    assert_eq!([10, 20, 25, 30, 40, 64, 100, 128, 500].map(above), [0, 0, 600, 600, 0, 0, 0, 0, 0]);
    // The smaller law says less than the larger one.
    assert_eq!(above(35), 0);
}
