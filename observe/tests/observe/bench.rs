//! Records of bench runs.

use gpu_tuned_core::{Bytes, Kernels, Precision};
use gpu_tuned_observe::bench::{
    Begin, Feed, Header, Interval, Line, Outcome, Planned, Request, Sections, Setup, frontier, powers_of_two,
};
use proptest::prelude::{any, prop, prop_assert_eq, proptest};

fn header(device: &str) -> Header {
    let header = r#"{"format": 1, "workload": "lm", "device": "a CPU", "kind": "cpu", "memory_bytes": 1073741824, "sm_count": 0,
        "cpu_threads": 2, "burn": "0.22.1", "parameters": 10, "shape": "00", "described": {"model": {"mlp": {"widths": [4, 2]}}},
        "debug": false, "counts_memory": true}"#;
    Header { device: device.to_owned(), ..serde_json::from_str(header).expect("a header") }
}

const fn setup(batch: u64) -> Setup {
    Setup { precision: Precision::F32, checkpointing: false, batch, feed: None }
}

fn ended(batch: u64, how: &str) -> Line {
    Line::Ended { setup: setup(batch), outcome: Box::new(Outcome::Died { how: how.to_owned() }) }
}

fn begin() -> Line {
    let (precision, checkpointing, kernels) = (Precision::F32, false, Kernels::Burn);
    let planned = Planned { precision, checkpointing, batch: 8, workers: 1, prefetch: 2, accumulation: 1, kernels };
    Line::Begin(Begin { planned, setups: vec![setup(8)] })
}

#[test]
fn newer_results_below_the_same_header_replace_older_ones() {
    let under = |device| Line::Header(Box::new(header(device)));
    let lines = [under("a"), ended(8, "1"), ended(16, "2"), under("b"), ended(8, "3"), under("a"), ended(8, "4")];
    let record = Sections::from_lines(lines);
    let how = |device: &str, batch| match record.section(&header(device))?.outcomes.get(&setup(batch))? {
        Outcome::Died { how } => Some(how.clone()),
        _ => None,
    };
    assert_eq!((how("a", 8), how("a", 16)), (Some("4".to_owned()), Some("2".to_owned())));
    assert_eq!((how("b", 8), how("b", 16)), (Some("3".to_owned()), None));
    assert_eq!(record.last().map(|section| section.header.device.as_str()), Some("a"));
    assert_eq!(Sections::from_lines([ended(8, "of nothing")]), Sections::default());
}

#[test]
fn other_kernels_are_those_of_their_header() {
    let under = |device| Line::Header(Box::new(header(device)));
    let record = Sections::from_lines([under("a"), Line::OtherKernels(Kernels::Library), under("b"), under("a")]);
    let other = |device| record.section(&header(device)).expect("a section").other_kernels;
    assert_eq!((other("a"), other("b")), (Some(Kernels::Library), None));
}

#[test]
fn a_setup_that_did_not_end_stays_open_until_another_process_starts() {
    let first = [Line::Header(Box::new(header("a"))), begin(), Line::Started(setup(8))];
    let open = |lines: &[Line]| Sections::from_lines(lines.to_vec()).last().and_then(|section| section.open);
    assert_eq!(open(&first), Some(setup(8)));
    for (then, wanted) in [(begin(), None), (ended(8, "killed"), None), (Line::Started(setup(9)), Some(setup(9)))] {
        let lines: Vec<_> = first.iter().cloned().chain([then]).collect();
        assert_eq!(open(&lines), wanted);
    }
}

#[test]
fn batches_go_upwards_and_each_is_fed_after_it_ran_alone() {
    let feed = Feed { workers: 2, prefetch: 4 };
    let request = Request {
        results: "results".into(),
        precision: None,
        batches: Vec::new(),
        checkpointing: vec![false, true],
        feeds: vec![feed],
        seconds: 1.0,
        ignored_bytes: 0,
    };
    let reported: Vec<_> = request.setups(Precision::F32, &[16, 8, 16]).iter().map(ToString::to_string).collect();
    let [first, second, ..] = reported.as_slice() else { panic!("{reported:?}") };
    assert_eq!((first.as_str(), second.as_str()), ("f32, batch 8", "f32, batch 8, 2 workers, prefetch 4"));
    assert_eq!((reported.len(), reported[4].as_str()), (8, "f32-checkpointed, batch 8"));
}

#[test]
fn without_batches_they_are_those_around_the_plan() {
    for (planned, largest, batches) in [
        (32, 512, &[4, 8, 16, 32, 64, 128][..]),
        (24, 512, &[4, 8, 16, 24, 32, 64]),
        (32, 40, &[4, 8, 16, 32]),
        (1, 1, &[1]),
        (64, 16, &[8, 16]),
    ] {
        assert_eq!(Request::around(planned, largest), batches, "{planned} of {largest}");
    }
    assert_eq!(powers_of_two(3, 17), [4, 8, 16]);
    assert_eq!(powers_of_two(5, 7), [0; 0]);
}

#[test]
fn the_middle_of_an_even_number_of_repeats_is_between_two_of_them() {
    let interval = Interval::from_figures(&[4.0, 1.0, 3.0, 2.0]).expect("figures");
    assert_eq!((interval.median, interval.least, interval.most), (2.5, 1.0, 4.0));
    assert_eq!(Interval::from_figures(&[]), None);
}

proptest! {
    /// By walking upwards through the memory, and keeping what is faster than all before.
    #[test]
    fn the_frontier_is_what_is_faster_than_all_that_takes_no_more(
        points in prop::collection::vec((any::<u8>(), 0_u8..20), 0..30)
    ) {
        let points: Vec<_> = points.into_iter().map(|(bytes, rate)| (Bytes(bytes.into()), f64::from(rate))).collect();
        let mut order: Vec<usize> = (0..points.len()).collect();
        order.sort_by(|a, b| points[*a].0.cmp(&points[*b].0).then(points[*b].1.total_cmp(&points[*a].1)));
        let (mut wanted, mut best) = (vec![false; points.len()], None);
        for at in order {
            let is_better = best.is_none_or(|(_, rate)| points[at].1 > rate);
            wanted[at] = is_better || best == Some(points[at]);
            best = if is_better { Some(points[at]) } else { best };
        }
        prop_assert_eq!(frontier(&points), wanted);
    }
}

#[test]
fn results_below_the_last_thousand_headers_are_kept() {
    let name = |at: usize| format!("GPU {at}");
    let headers = (0..=1000).map(|at| Line::Header(Box::new(header(&name(at)))));
    let record = Sections::from_lines(headers);
    let kept = [0, 1, 1000].map(|at| record.section(&header(&name(at))).is_some());
    assert_eq!(kept, [false, true, true]);
}
