//! The gain of the library's kernels beside the measurements.

use std::fs;

use gpu_tuned_core::LibraryGain;
use gpu_tuned_core::workload::Family;
use serde_json::Value;

const MEASURED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/experiments/results/h200/library.jsonl");

/// Samples per second of a model in f32, in Burn's plain loop or with the library and CUDA graphs.
fn rate(lines: &[Value], model: &str, is_plain: bool) -> f64 {
    let is_it = |line: &&Value| {
        let library = (line["library"] == true, line["cuda_graphs"] == true);
        let kind = (line["run"] == "baseline", line["precision"] == "f32", line["plain"] == is_plain);
        line["model"] == model && kind == (true, true, true) && library == (!is_plain, !is_plain)
    };
    let line = lines.iter().find(is_it).unwrap_or_else(|| panic!("no measurement of {model}"));
    line["samples_per_second"].as_f64().expect("a rate")
}

#[test]
fn the_gain_is_the_measured_one() {
    let text = fs::read_to_string(MEASURED).expect("measurements");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let gain = |model| rate(&lines, model, false) / rate(&lines, model, true);
    let measured = LibraryGain::of_family(Family::Transformer).expect("a gain");
    let gains = ["transformer", "gpt", "vit"].map(gain);
    let (least, most) = (gains.into_iter().reduce(f64::min), gains.into_iter().reduce(f64::max));
    for (stated, found) in [(measured.least, least.expect("a gain")), (measured.most, most.expect("a gain"))] {
        assert!((stated / found - 1.0).abs() < 1e-3, "{stated} for {found}");
    }
    let words = "1.7 to 3.4 times as fast on an H200 (transformers in f32, with CUDA graphs)";
    assert_eq!(measured.to_string(), words);
    let book = include_str!("../../../docs/kernels.md");
    assert!(book.contains(&words[..words.find(" (").expect("a condition")]), "{words}");
    assert!([Family::Convnet, Family::Recurrent, Family::Other].map(LibraryGain::of_family) == [None; 3]);
}
