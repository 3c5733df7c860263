//! Plots of memory and speed.

use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::{Bytes, Precision};
use gpu_tuned_observe::plot::{Limit, MemorySpeedPlot, ModeLine, Point, Ring, step};

const F32: Mode = Mode::new(Precision::F32, false);

fn plot(amounts: &[u64]) -> MemorySpeedPlot {
    let point = |(index, mib): (usize, &u64)| Point {
        batch: 8 << index,
        memory: Bytes::from_mib(*mib),
        samples_per_s: 100.0 * (index + 1) as f64,
        interval: Some((90.0 * (index + 1) as f64, 110.0 * (index + 1) as f64)),
    };
    let points = amounts.iter().enumerate().map(point).collect();
    MemorySpeedPlot {
        title: "a < b & c".to_owned(),
        lines: vec![ModeLine { mode: F32, points }],
        ..MemorySpeedPlot::default()
    }
}

fn labels(svg: &str) -> Vec<String> {
    let below = |line: &&str| line.contains("y=\"427.0\"");
    let text = |line: &str| Some(line.split('>').nth(1)?.split('<').next()?.to_owned());
    svg.lines().filter(below).filter_map(text).collect()
}

#[test]
fn grids_have_four_to_eight_round_lines() {
    for most in [0.7, 1.0, 4.1, 9.9, 10.0, 41.0, 99.0, 880.0, 1400.0, 6219.0, 123_456.0] {
        let step = step(most);
        assert!((4.0..=8.0).contains(&(most / step)), "{most}: {step}");
        let digits = format!("{step:e}");
        assert!(["1e", "2e", "5e"].iter().any(|round| digits.starts_with(round)), "{most}: {step}");
    }
}

#[test]
fn memory_is_labelled_in_the_unit_that_suits_it() {
    let (small, large) = (plot(&[20, 70, 300]).svg(), plot(&[600, 3000]).svg());
    assert!(small.contains("memory needed, MiB") && large.contains("memory needed, GiB"));
    assert_eq!(labels(&small), ["32", "64", "128", "256"]);
    assert_eq!(labels(&large), ["1", "2"]);
}

#[test]
fn points_close_together_have_labels_beside_them() {
    assert_eq!(labels(&plot(&[40, 41]).svg()), ["32", "64"]);
    assert_eq!(labels(&plot(&[40]).svg()), ["32", "64"]);
    assert!(plot(&[]).svg().ends_with("</svg>\n"));
}

#[test]
fn text_is_escaped() {
    let mut plot = plot(&[40]);
    plot.note = "<script>".to_owned();
    plot.limits = vec![Limit { memory: Bytes::from_mib(64), label: "<8>".to_owned() }];
    let title = "</title>".to_owned();
    plot.rings = vec![Ring { memory: Bytes::from_mib(40), samples_per_s: 100.0, until: Vec::new(), title }];
    let svg = plot.svg();
    assert!(svg.contains("a &lt; b &amp; c") && svg.contains("&lt;script&gt;") && svg.contains("&lt;/title&gt;"));
    assert!(!svg.contains("<script>") && svg.contains(">&lt;8&gt;<"), "{svg}");
}

#[test]
fn the_frontier_is_drawn_in_steps_to_the_right_end() {
    let mut plot = plot(&[64, 128]);
    let without = plot.svg();
    plot.frontier = vec![(Bytes::from_mib(64), 100.0), (Bytes::from_mib(128), 200.0)];
    let svg = plot.svg();
    let added: Vec<_> = svg.lines().filter(|line| !without.contains(line)).collect();
    let [steps] = added.as_slice() else { panic!("{added:?}") };
    assert!(steps.contains("spare line") && steps.matches('H').count() == 2 && steps.contains("H780\""), "{steps}");
}
