//! The gain of the library's kernels beside the measurements.

use std::fs;

use gpu_tuned_core::LibraryGain;
use gpu_tuned_core::workload::Family;
use serde_json::Value;

const MEASURED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/experiments/results/h200/side-by-side.jsonl");

/// Samples per second of a model in f32, in Burn's plain loop or with the library and CUDA graphs.
fn rate(lines: &[Value], model: &str, way: &str) -> f64 {
    let is_it =
        |line: &&Value| (line["run"] == "baseline", &line["model"], &line["way"]) == (true, &model.into(), &way.into());
    let line = lines.iter().find(is_it).unwrap_or_else(|| panic!("no measurement of {model}"));
    line["samples_per_second"].as_f64().expect("a rate")
}

#[test]
fn the_gain_is_the_measured_one() {
    let text = fs::read_to_string(MEASURED).expect("measurements");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let gain = |model: &&str| rate(&lines, model, "f32") / rate(&lines, model, "plain");
    let book = include_str!("../../../docs/kernels.md");
    for (family, models, words) in [
        (
            Family::Transformer,
            &["transformer", "gpt", "vit"][..],
            "2.6 to 3.4 times as fast on an H200 (transformers in f32",
        ),
        (
            Family::Convnet,
            &["unet", "convnet", "resnet"],
            "2.4 to 4.6 times as fast on an H200 (convolutional networks in f32",
        ),
        (Family::Recurrent, &["lstm"], "53 times as fast on an H200 (an LSTM of three layers in f32"),
    ] {
        let measured = LibraryGain::of_family(family).expect("a gain");
        let gains = models.iter().map(gain);
        let (least, most) = (gains.clone().reduce(f64::min), gains.reduce(f64::max));
        for (stated, found) in [(measured.least, least.expect("a gain")), (measured.most, most.expect("a gain"))] {
            assert!((stated / found - 1.0).abs() < 1e-3, "{stated} for {found}");
        }
        assert_eq!(measured.to_string(), format!("{words}, with CUDA graphs)"));
        assert!(book.contains(&words[..words.find(" as fast").expect("a factor")]), "{words}");
    }
    assert_eq!(LibraryGain::of_family(Family::Other), None);
}
