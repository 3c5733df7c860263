//! Plots of memory and speed.

use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::{Bytes, Precision};
use gpu_tuned_observe::plot::{
    BarGroup, BarPlot, Limit, Mark, MarkKind, MemorySpeedPlot, ModeLine, PlotSize, Point, step,
};

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

/// Labels of the memory axis: the texts after its ticks.
fn labels(svg: &str) -> Vec<String> {
    let text = |line: &str| Some(line.split('>').nth(1)?.split('<').next()?.to_owned());
    let lines: Vec<_> = svg.lines().collect();
    lines.windows(2).filter(|pair| pair[0].ends_with("v5\"/>")).filter_map(|pair| text(pair[1])).collect()
}

/// Texts of this class.
fn texts(svg: &str, class: &str) -> Vec<String> {
    let tree = roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    let of_class = tree.descendants().filter(|node| node.attribute("class") == Some(class));
    of_class.filter_map(|node| node.text().map(str::to_owned)).collect()
}

fn figure(node: roxmltree::Node<'_, '_>, name: &str) -> Option<f64> {
    node.attribute(name)?.parse().ok()
}

/// Asserts that texts of characters of this width are inside of the picture.
fn assert_texts_are_inside(svg: &str, character: f64) {
    let tree = roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    let [width, height] = ["width", "height"].map(|name| figure(tree.root_element(), name).unwrap());
    for text in tree.descendants().filter(|node| node.has_tag_name("text") && node.attribute("x").is_some()) {
        let [x, y] = ["x", "y"].map(|name| figure(text, name).unwrap());
        let long = character * text.text().unwrap_or_default().chars().count() as f64;
        let begin = match text.attribute("text-anchor") {
            Some("middle") => x - long / 2.0,
            Some("end") => x - long,
            _ => x,
        };
        let is_inside = begin >= 0.0 && begin + long <= width && (10.0..=height).contains(&y);
        assert!(is_inside, "{text:?} in {svg}");
    }
}

fn mark(kind: MarkKind, batch: u64, mib: u64, samples_per_s: f64) -> Mark {
    let title = format!("{kind}: </title>");
    Mark { kind, batch, memory: Bytes::from_mib(mib), samples_per_s, until: Vec::new(), title }
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
    assert_eq!(labels(&large), ["0.75", "1", "1.5", "2", "3"]);
}

#[test]
fn points_close_together_have_labels_beside_them() {
    assert_eq!(labels(&plot(&[40, 41]).svg()), ["32", "48", "64"]);
    assert_eq!(labels(&plot(&[40]).svg()), ["32", "48", "64"]);
    assert!(plot(&[]).svg().ends_with("</svg>\n"));
}

#[test]
fn text_is_escaped() {
    let mut plot = plot(&[40]);
    plot.note = "<script>".to_owned();
    plot.limits = vec![Limit { memory: Bytes::from_mib(64), label: "<8>".to_owned() }];
    plot.marks = vec![mark(MarkKind::Planned, 8, 40, 100.0)];
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
    assert!(steps.contains("spare") && steps.matches('H').count() == 2 && steps.contains("H784\""), "{steps}");
}

#[test]
fn batches_are_labelled_and_marked_ones_stand_out() {
    let mut plot = plot(&[64, 128, 256, 512]);
    assert_eq!(texts(&plot.svg(), "batch"), ["8", "16", "32", "64"]);
    plot.marks = vec![
        mark(MarkKind::Fixed, 64, 512, 400.0),
        mark(MarkKind::Planned, 16, 128, 200.0),
        // Beyond every point, as of a batch that was not measured.
        mark(MarkKind::Largest, 96, 768, 450.0),
    ];
    let svg = plot.svg();
    assert_eq!(texts(&svg, "batch"), ["8", "32"]);
    assert_eq!(texts(&svg, "chosen"), ["64", "16", "96"]);
    let names =
        ["planned", "largest that fits", "batch 64"].map(|name| svg.find(&format!(">{name}: &lt;/title&gt;</text>")));
    assert!(names.iter().all(Option::is_some) && names.is_sorted(), "{svg}");
}

#[test]
fn everything_is_inside_of_the_picture_in_both_sizes() {
    for size in [PlotSize::Wide, PlotSize::Narrow] {
        let mut plot = MemorySpeedPlot { size, ..plot(&[64, 65, 66, 70, 90, 128, 256, 512, 4096]) };
        plot.title = "a model with a long name on NVIDIA H100 80GB HBM3 (79.6 GiB of memory), measured".to_owned();
        plot.note =
            "dotted: memory of a card, in GiB; bars: from the slowest to the fastest repeat of a batch".to_owned();
        let modes = [Precision::F32, Precision::Bf16Params].map(|precision| Mode::new(precision, true));
        plot.lines.extend(modes.map(|mode| ModeLine { mode, points: Vec::new() }));
        plot.limits = vec![Limit { memory: Bytes::from_mib(8192), label: "8 GiB available".to_owned() }];
        plot.marks = vec![mark(MarkKind::Planned, 16, 65, 200.0)];
        // The width of a common font, which is below the estimate of labels.
        assert_texts_are_inside(&plot.svg(), 6.0);
    }
}

#[test]
fn bars_are_as_long_as_their_figures_and_labels_fit() {
    let group = |name: &str, lengths: [f64; 2]| {
        let bars = lengths.map(|length| (length, format!("{length} samples/s"))).to_vec();
        BarGroup { name: name.to_owned(), bars }
    };
    let plot = BarPlot {
        size: PlotSize::Narrow,
        title: "a < b".to_owned(),
        names: ["plain", "tuned"].map(str::to_owned).to_vec(),
        groups: vec![group("transformer & co", [1.0, 4.0]), group("lstm", [0.0, 2.0])],
        ..BarPlot::default()
    };
    let svg = plot.svg();
    let tree = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    // Those of the legend have no place of their own.
    let bars = tree.descendants().filter(|node| node.has_tag_name("rect") && node.attribute("x").is_some());
    let bars: Vec<f64> = bars.filter_map(|node| figure(node, "width")).collect();
    for (found, length) in bars.iter().zip([1.0, 4.0, 0.0, 2.0]) {
        assert!((found - bars[1] * length / 4.0).abs() < 0.11, "{bars:?}");
    }
    assert_texts_are_inside(&svg, 6.9);
}
