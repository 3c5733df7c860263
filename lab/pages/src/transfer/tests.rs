use gpu_tuned_core::profile::Peak;
use gpu_tuned_core::workload::{Block, Convnet, Stage, Transformer};
use serde::Deserialize;

use super::*;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace")
}

#[test]
fn held_out_workloads_are_ordered_right_within_the_stated_interval() {
    let series = training(root(), true).expect("data");
    let pairs = Pair::all(&series).expect("pairs");
    for is_fitting in [true, false] {
        let by = |by: fn(&Pair<'_>) -> f64| agreement(half(&pairs, is_fitting), by).expect("pairs");
        let (planner, peak, root) = (by(predicted), by(|pair| pair.by_peak), by(|pair| pair.by_root));
        assert!(planner.pairs > 1000 && planner.ordered > 0.95 && planner.median < 1.2, "{}", planner.ordered);
        for other in [peak, root] {
            assert!(planner.ordered > other.ordered && planner.worst_tenth < other.worst_tenth);
        }
    }
    let held_out = agreement(half(&pairs, false), predicted).expect("pairs");
    assert!((held_out.worst_tenth - TRANSFER_ERROR).abs() < 0.01, "{}", held_out.worst_tenth);
    let series = training(root(), false).expect("data");
    let pairs = Pair::all(&series).expect("pairs");
    for is_fitting in [true, false] {
        let trusted = agreement(half(&pairs, is_fitting), predicted).expect("pairs");
        assert!(trusted.ordered > 0.95 && trusted.median < 1.2 && trusted.worst_tenth < 1.6, "{}", trusted.worst_tenth);
    }
}

#[test]
fn the_width_is_the_least_squares_fit_on_the_workloads_for_fitting() {
    let series = training(root(), true).expect("data");
    let pairs = Pair::all(&series).expect("pairs");
    assert_eq!(fitted_width(half(&pairs, true)), BALANCED_WIDTH as u32);
}

#[test]
fn widths_of_published_workloads_are_those_of_the_planner() {
    let of =
        |name: &str| training(root(), true).expect("data").into_iter().find(|one| one.workload == name).expect("it");
    let resnet = |blocks: [u64; 4]| {
        let stages =
            [256, 512, 1024, 2048].into_iter().zip(blocks).map(|(channels, blocks)| Stage { channels, blocks });
        let stem = Convnet { stem_kernel: 7, stem_stride: 4, ..Convnet::default() };
        Convnet { image: 224, classes: 1000, block: Block::Bottleneck, stages: stages.collect(), ..stem }.workload()
    };
    for (name, model) in [
        ("lambda-resnet50-train", resnet([3, 4, 6, 3])),
        ("nikolasent-resnet152-fwdbwd", resnet([3, 8, 36, 3])),
        ("lambda-bert_base_squad-train", Transformer::new(12, 768, 30_522, 384).workload()),
        ("lambda-bert_large_squad-train", Transformer::new(24, 1024, 30_522, 384).workload()),
    ] {
        let width = model.width().expect("shapes");
        assert!((of(name).width / width - 1.0).abs() < 0.02, "{name}: {width}");
    }
}

#[test]
fn no_workload_is_in_both_halves() {
    let series = training(root(), true).expect("data");
    let mut halves: BTreeMap<&str, bool> = BTreeMap::new();
    for one in &series {
        assert_eq!(*halves.entry(&one.workload).or_insert(one.is_fitting), one.is_fitting, "{}", one.workload);
    }
    let fitting = halves.values().filter(|is_fitting| **is_fitting).count();
    assert!(fitting.abs_diff(halves.len() - fitting) <= 4, "{halves:?}");
}

fn peaks(profile: &Profile) -> [(&'static str, Option<&Peak>); 4] {
    let peaks = &profile.peaks;
    [("fp32", &peaks.fp32), ("tf32", &peaks.tf32), ("fp16", &peaks.fp16), ("bf16", &peaks.bf16)]
        .map(|(format, peak)| (format, peak.as_ref()))
}

/// Fractions of the peaks that tests of a GPU reach, by format.
fn tested(profile: &Profile) -> BTreeMap<&'static str, f64> {
    let products = rows(root(), "matmul.tsv").expect("data");
    let fraction = |(format, peak): (&'static str, Option<&Peak>)| {
        let is_of = |row: &&BTreeMap<String, String>| {
            row["gpu"] == profile.id.as_str() && row["format"] == format && row["doubt"].is_empty()
        };
        let tflops = |row: &BTreeMap<String, String>| row["tflops"].parse::<f64>().expect("a number");
        let rates: Vec<f64> = products.iter().filter(is_of).map(tflops).collect();
        Some((format, median(&rates)? / peak?.tflops))
    };
    peaks(profile).into_iter().filter_map(fraction).collect()
}

/// False for a fraction that follows from the power limit.
fn is_tested(peak: &Peak) -> bool {
    peak.reached_source.as_deref() != Some("power")
}

#[test]
fn profiles_have_the_fractions_of_the_published_tests() {
    for profile in ProfileTable::builtin().iter().filter(|profile| profile.id.as_str() != "generic") {
        let tested = tested(profile);
        for (format, peak) in peaks(profile) {
            let (reached, tested) =
                (peak.filter(|peak| is_tested(peak)).and_then(|peak| peak.reached), tested.get(format));
            match (reached, tested) {
                (Some(reached), Some(tested)) => {
                    assert!((reached - tested).abs() <= 0.0051, "{} {format}: {reached} {tested}", profile.id);
                }
                (reached, tested) => assert_eq!(reached, tested.copied(), "{} {format}", profile.id),
            }
        }
    }
}

#[derive(Deserialize)]
struct Classes {
    class: Vec<Class>,
}

#[derive(Deserialize)]
struct Class {
    compute_capability: String,
    half_rate: bool,
    fp32: f64,
    tensor: Option<f64>,
    fp16_per_fp32: Option<f64>,
    like: Option<String>,
}

#[test]
fn classes_have_the_medians_of_their_gpus() {
    let text = std::fs::read_to_string(root().join("core/src/profile/reached.toml")).expect("the table");
    let classes: Classes = toml::from_str(&text).expect("it is TOML");
    for class in classes.class {
        let capability = class.like.as_ref().unwrap_or(&class.compute_capability);
        let alike = |capability: &str| {
            let capability = capability.to_owned();
            ProfileTable::builtin().iter().filter(move |profile| {
                profile.compute_capability.to_string() == capability
                    && profile.compute.half_rate_fp32_accumulate == class.half_rate
                    && profile.id.as_str() != "generic"
            })
        };
        let reached = |is_tensor: bool| -> Vec<f64> {
            let of = |(format, peak): (&str, Option<&Peak>)| {
                peak.filter(|peak| is_tested(peak))?.reached.filter(|_| (format != "fp32") == is_tensor)
            };
            alike(capability).flat_map(|profile| peaks(profile).into_iter().filter_map(of)).collect()
        };
        let ratio = |profile: &Profile| Some(profile.peaks.fp16.as_ref()?.tflops / profile.peaks.fp32.as_ref()?.tflops);
        let ratios: Vec<f64> = alike(&class.compute_capability).filter_map(ratio).collect();
        let figures = [
            (Some(class.fp32), reached(false), 0.0101),
            (class.tensor, reached(true), 0.0101),
            (class.fp16_per_fp32, ratios, 0.1),
        ];
        for (figure, values, tolerance) in figures {
            let expected = median(&values);
            let is_near = match (figure, expected) {
                (Some(figure), Some(expected)) => (figure - expected).abs() <= tolerance,
                (figure, expected) => figure == expected,
            };
            assert!(is_near, "{} {}: {figure:?}, not {expected:?}", class.compute_capability, class.half_rate);
        }
    }
}

#[test]
fn the_page_is_of_the_data_and_names_the_interval() {
    let page = page(root()).expect("a page");
    assert!(page.contains(&format!("x{TRANSFER_ERROR}")) && page.contains("| fp32 against TF32 |"), "{page}");
    assert!(page.lines().filter(|line| line.contains(" : ")).count() >= WORST, "{page}");
}
