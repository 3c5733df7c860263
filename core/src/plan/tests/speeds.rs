//! Speeds of GPUs: derived and measured ones, relative to each other, and fractions of a device that plans use.

use super::*;
use crate::device::Rates;
use crate::plan::calibration::{BALANCED_WIDTH, REFERENCE, SPEED_ERRORS, TRANSFER_ERROR};
use crate::plan::time::Speeds;
use crate::plan::{SpeedError, TimeTerm, filling, relative_speed, speed_interval, with_interval};
use crate::workload::{Block, Convnet, Declared, Family, Recurrent, Stage};
use crate::{Kernels, Provenance};

/// Networks that fill a GPU.
fn workloads() -> [Workload; 2] {
    let stages = vec![Stage { channels: 256, blocks: 8 }];
    let convnet = Convnet { image: 64, classes: 10, block: Block::Plain, stages, ..Convnet::default() };
    [Transformer::new(12, 768, 50_257, 512).workload(), convnet.workload()]
}

#[test]
fn the_reference_has_the_figures_of_its_profile() {
    let h200 = Speeds::from(&nominal("h200"));
    for precision in Precision::ALL {
        let ratio = h200.relative_to(&REFERENCE, Mode::new(precision, false), BALANCED_WIDTH).expect("rates");
        assert!((ratio - 1.0).abs() < 1e-5, "{precision}: {ratio}");
    }
    let full = Mode { full_f32: true, ..Mode::new(Precision::F32, false) };
    assert!(h200.relative_to(&REFERENCE, full, BALANCED_WIDTH).is_some_and(|ratio| (ratio - 1.0).abs() < 1e-5));
}

#[test]
fn gpus_are_ordered_as_they_train_in_every_precision_that_both_have() {
    let pairs = [
        ("a100-pcie-40gb", "rtx4070"),
        ("a100-sxm4-40gb", "rtx4070-super"),
        ("h100-sxm5-80gb", "a100-sxm4-80gb"),
        ("h100-pcie", "a100-pcie-80gb"),
        ("rtx4090", "rtx3090"),
        ("rtx3090", "rtx2080-ti"),
        ("rtx5090", "rtx4090"),
        ("h200", "h100-sxm5-80gb"),
    ];
    for workload in workloads() {
        for precision in Precision::ALL {
            let pins = Pins { batch_size: Some(16), ..Pins::default() };
            let goal = Goal { precision: Some(precision.into()), pins, ..Goal::default() };
            let speed = |id| plan(&nominal(id), &workload, &goal).ok().map(|plan| plan.samples_per_s);
            for (faster, slower) in pairs {
                let (Some(fast), Some(slow)) = (speed(faster), speed(slower)) else { continue };
                assert!(fast > slow, "{precision}: {faster} {fast}, {slower} {slow}");
            }
        }
    }
}

#[test]
fn a_gpu_with_tensor_cores_gains_more_from_16_bits() {
    let gain = |id: &str, precision| {
        let (device, reference) = (nominal(id), nominal("h200"));
        let ratio = |precision| {
            relative_speed(&device, &reference, Mode::new(precision, false), BALANCED_WIDTH).expect("rates")
        };
        ratio(precision) / ratio(Precision::F32)
    };
    assert!(gain("v100-sxm2-16gb", Precision::MixedF16) > 1.4);
    assert!(gain("gtx1080", Precision::MixedF16) < 0.9);
}

#[test]
fn without_rates_the_peaks_stand_in_and_without_figures_nothing() {
    let mode = Mode::new(Precision::F32, false);
    let (l4, h200) = (nominal("l4"), nominal("h200"));
    let old = DeviceFacts { rates: Rates::default(), ..l4.clone() };
    let ratio = relative_speed(&old, &h200, mode, BALANCED_WIDTH).expect("peaks");
    let expected = (30.3_f64 / 67.0).sqrt() * (300.0_f64 / 4800.0).sqrt();
    assert!((ratio / expected - 1.0).abs() < 0.01, "{ratio} {expected}");
    let bandwidth_only = DeviceFacts { fp32_tflops: None, ..old };
    assert_eq!(relative_speed(&bandwidth_only, &h200, mode, BALANCED_WIDTH), Some(300.0 / 4800.0));
    assert_eq!(
        relative_speed(&DeviceFacts { bandwidth_gb_s: None, ..bandwidth_only }, &h200, mode, BALANCED_WIDTH),
        None
    );
}

#[test]
fn predicted_speeds_of_gpus_have_an_interval_by_the_kind_of_their_error() {
    let (h200, l4, cpu) = (nominal("h200"), nominal("l4"), DeviceFacts::cpu(Bytes(1 << 34), Bytes(1 << 34), 8));
    let width = |device, error| {
        let [low, high] = speed_interval(device, 100.0, Some(error)).expect("an interval");
        assert!((low * high - 1e4).abs() < 1e-6, "the factor is the same below and above");
        high / 100.0
    };
    for (error, factor) in SPEED_ERRORS {
        assert!((width(&h200, error) - factor).abs() < 1e-9, "{error}");
    }
    // On another GPU an absolute speed has both errors: more than either, and less than their product.
    let [absolute, launch_bound, ratio] = SPEED_ERRORS.map(|(error, _)| width(&l4, error));
    assert!(ratio < absolute && absolute < launch_bound && (ratio - TRANSFER_ERROR).abs() < 1e-9);
    let own = width(&h200, SpeedError::Absolute);
    assert!(absolute > own.max(ratio) && absolute < own * ratio, "{absolute}");

    let error = |provenance, utilization| SpeedError::new(&l4, provenance, utilization);
    assert_eq!(error(Provenance::Derived, 0.9), Some(SpeedError::Absolute));
    assert_eq!(error(Provenance::Derived, 0.5), Some(SpeedError::LaunchBound));
    assert_eq!(error(Provenance::Transferred, 0.5), Some(SpeedError::BetweenGpus));
    assert_eq!(error(Provenance::Measured, 0.9), None);
    assert_eq!(SpeedError::new(&cpu, Provenance::Derived, 0.9), None);
    assert_eq!(with_interval(1234.0, speed_interval(&l4, 1234.0, Some(SpeedError::BetweenGpus))), "1,234 ±x1.6");
    assert_eq!(with_interval(1234.0, speed_interval(&l4, 1234.0, None)), "1,234");
}

/// Networks of small launches. For `digits` 15,888 samples/s were predicted on an H100 and 3,253 to 4,193 measured, for `char-lm`
/// 14,689 and 2,978 to 3,339 (`lab/experiments/results/h100-sxm5-80gb/examples.jsonl`).
#[test]
fn a_launch_bound_plan_names_its_launches_and_has_the_wider_interval() {
    let digits = Declared {
        parameters: 29_660,
        activation_bytes_per_sample: 1_929_500,
        flops_per_sample: 3.96e7,
        kernels_per_step: 1500,
        family: Family::Convnet,
        ..Declared::default()
    };
    let char_lm = Transformer { heads: Some(4), tied_head: false, dropout: false, ..Transformer::new(3, 96, 80, 64) };
    let h100 = nominal("h100-sxm5-80gb");
    for (workload, batch, launches, measured) in
        [(digits.workload(), 256, "1,500", [3253.0, 4193.0]), (char_lm.workload(), 64, "400", [2978.0, 3339.0])]
    {
        let found = planned(&h100, &workload, &global(batch));
        let [low, high] = found.samples_per_s_interval.expect("a predicted speed");
        assert!(low < measured[0] && high > measured[1], "{low} {high}");
        let text = found.to_string();
        let reason = format!("launch-bound: {launches} launches a micro-batch");
        assert!(text.contains(&reason) && text.contains("derived, ± absolute, launch-bound"), "{text}");
    }
    let filled = planned(&h100, &small(), &global(512)).to_string();
    assert!(filled.contains("derived, ± absolute)") && !filled.contains("launch-bound"), "{filled}");
}

fn convnet(image: u64, block: Block, stages: &[(u64, u64)]) -> Workload {
    let stages = stages.iter().map(|&(channels, blocks)| Stage { channels, blocks }).collect();
    Convnet { image, classes: 10, block, stages, batch_statistics: true, ..Convnet::default() }.workload()
}

/// Micro-batches on an H200 with their samples per second in f32, from the raw data of this repository.
fn measured() -> [(&'static str, Workload, u64, f64); 6] {
    let lstm = |inputs, hidden, layers, seq| {
        Recurrent { inputs, hidden, layers, seq, outputs: 1, ..Recurrent::default() }.workload()
    };
    let resnet = [(64, 2), (128, 2), (256, 2), (512, 2)];
    [
        ("four convolutions of 32 channels", convnet(128, Block::Plain, &[(32, 4)]), 16, 1561.0),
        ("the same, more samples", convnet(128, Block::Plain, &[(32, 4)]), 512, 1381.0),
        ("eight of 96", convnet(64, Block::Plain, &[(96, 8)]), 64, 844.0),
        ("a ResNet-18", convnet(32, Block::Basic, &resnet), 256, 5118.0),
        ("an LSTM", lstm(8, 64, 2, 30), 128, 1760.0),
        ("a larger one", lstm(64, 256, 3, 60), 512, 1824.0),
    ]
}

#[test]
fn derived_speeds_are_within_a_quarter_of_measured_ones() {
    for (name, workload, batch, samples_per_s) in measured() {
        let off = planned(&nominal("h200"), &workload, &pinned(batch)).samples_per_s / samples_per_s;
        assert!((0.75..1.25).contains(&off), "{name}: {off:.2} times what was measured");
    }
}

/// Burn's bf16 products over those in f32, of feed-forward layers on an H200: 1.8 at a width of 512, 3.4 at 8,192
/// (`lab/experiments/results/h200/library.jsonl`).
#[test]
fn wider_products_are_faster_and_gain_more_from_16_bits_and_from_faster_gpus() {
    let [h200, l40s] = [nominal("h200"), nominal("l40s")];
    let rate = |device: &DeviceFacts, width: u64, precision: Precision| {
        let workload = Transformer { heads: Some(8), ..Transformer::new(1, width, 256, 64) }.workload();
        let goal = Goal { precision: Some(precision.into()), ..pinned(64) };
        let terms = explain(device, &workload, &goal).expect("it fits").time;
        let products = terms.iter().find(|term| term.name == "products").expect("a term of products");
        assert!(products.formula.contains(&format!("(width {})", (4 * width + 2) / 5)), "{}", products.formula);
        64.0 * workload.sample.flops / products.seconds
    };
    let [narrow, wide] =
        [512, 8192].map(|width| [Precision::F32, Precision::MixedBf16].map(|it| rate(&h200, width, it)));
    assert!(wide[0] > 1.5 * narrow[0] && wide[1] > 2.5 * narrow[1], "{narrow:?} {wide:?}");
    for (of, measured) in [(narrow, 1.8), (wide, 3.4)] {
        assert!((0.6..1.0).contains(&(of[1] / of[0] / measured)), "{of:?}");
    }
    // The H200 has 2.9 times the rate of an L40S, and 5.6 times its bandwidth.
    let [narrow, wide] =
        [512, 8192].map(|width| rate(&h200, width, Precision::F32) / rate(&l40s, width, Precision::F32));
    assert!((2.9..3.2).contains(&wide) && (1.3 * wide..5.6).contains(&narrow), "{narrow} {wide}");
}

/// Samples per second with the library on an H200 at 64 samples, from `lab/experiments/results/h200/library.jsonl`. Those in
/// f32 are with CUDA graphs, which launch nothing.
#[test]
fn derived_speeds_with_the_library_are_within_a_fifth_of_measured_ones() {
    let model = |width, words, heads| {
        let dims = Transformer {
            heads: Some(heads),
            tied_head: false,
            dropout: false,
            ..Transformer::new(6, width, words, 256)
        };
        dims.workload()
    };
    for (workload, in_f32, in_bf16) in [(model(512, 8192, 8), 2210.0, 2911.0), (model(384, 50_257, 6), 1741.0, 2549.0)]
    {
        for (precision, measured) in [(Precision::F32, in_f32), (Precision::MixedBf16, in_bf16)] {
            let mut goal = pinned(64);
            (goal.precision, goal.kernels) = (Some(precision.into()), Some(Kernels::Library));
            let terms = explain(&nominal("h200"), &workload, &goal).expect("it fits").time;
            let counts = |term: &&TimeTerm| precision != Precision::F32 || term.name != "launches";
            let seconds: f64 = terms.iter().filter(counts).map(|term| term.seconds).sum();
            let off = 64.0 / seconds / measured;
            assert!((0.8..1.2).contains(&off), "{precision}, {} parameters: {off:.2}", workload.parameters.trained());
        }
    }
}

#[test]
fn the_library_gains_nothing_where_no_gain_was_measured() {
    let speed = |device: &DeviceFacts, workload: &Workload, kernels, full_f32: bool| {
        let mut goal = Goal { kernels: Some(kernels), ..pinned(16) };
        goal.pins.allow_tf32 = full_f32.then_some(false);
        planned(device, workload, &goal).samples_per_s
    };
    let [transformer, convnet] = workloads();
    let perceptron = Mlp { widths: vec![4096; 8] }.workload();
    let (h200, pascal) = (nominal("h200"), nominal("p100-pcie-16gb"));
    for (device, workload, full_f32, gains) in [
        (&h200, &transformer, false, true),
        (&h200, &transformer, true, false),
        (&h200, &convnet, false, true),
        (&h200, &perceptron, false, false),
        (&pascal, &small(), false, false),
    ] {
        let of = |kernels| speed(device, workload, kernels, full_f32);
        assert_eq!(of(Kernels::Library) > of(Kernels::Burn) * 1.5, gains, "{} {full_f32}", device.name);
        assert!(of(Kernels::Library) >= of(Kernels::Burn));
    }
}

#[test]
fn a_small_recurrent_network_leaves_a_device_waiting_and_a_wide_transformer_does_not() {
    let device = nominal("h200");
    let lstm = Recurrent { inputs: 8, hidden: 64, layers: 2, seq: 30, outputs: 1, ..Recurrent::default() }.workload();
    let gpt = Transformer::new(12, 768, 50_257, 1024).workload();
    let of = |workload| filling(&device, workload, &planned(&device, workload, &global(128)));
    let (small, large) = (of(&lstm), of(&gpt));
    assert!(small.utilization < 0.1 && large.utilization > 0.9, "{small:?} {large:?}");
    // 6 x 124 M parameters and attention, at the speed that is predicted: the share of the peak that is calibrated.
    assert!(large.of_peak.is_some_and(|share| (0.45..0.55).contains(&share)), "{large:?}");
}
