//! LoRA and QLoRA: trained, packed, copied and kept values in Burn, compared with core's.

use std::collections::BTreeMap;

use burn::{
    module::{Lora, Module, ParamGroup, QLora, Quantizer},
    tensor::{
        Device,
        quantization::{Calibration, QuantScheme, QuantValue, ScaleDtype},
    },
};
use gpu_tuned_core::workload::{Matrix, ModelSpec, Training, Transformer, WeightFormat, Workload, WorkloadSpec};
use models_tests::{
    Network,
    diffusion::Diffusion,
    encoder_decoder::EncoderDecoder,
    llama::{Llama, llama},
    measure::{self, trainable},
    vit::Vit,
};

use crate::costs::{self, diffusion_dimensions, encoder_decoder_dimensions, vit};

const RANK: usize = 4;
const BLOCK: u8 = 32;
const ALL: &str = r"^layers\.\d+\.(.*\.)?(query|key|value|output|down|linear_inner|linear_outer)\.weight$";
const QUERY_AND_VALUE: &str = r"\.(query|value)\.weight$";
const SAMPLES: usize = 2;

const LAYERS: u64 = 2;
const WIDTH: u64 = 128;
/// Width of the keys: 2 of 8 heads.
const KEYS: u64 = WIDTH / 8 * 2;
const INNER: u64 = 448;

/// No weight has as many bytes as anything else that is kept.
fn dimensions() -> Transformer {
    llama([LAYERS, WIDTH, 1100, 96], INNER, [8, 2])
}

/// The matrices with adapters: in Burn, and in core.
fn targets() -> [(&'static str, Vec<Matrix>); 2] {
    use Matrix::{Down, Gate, Key, Output, Query, Up, Value};
    [(QUERY_AND_VALUE, vec![Query, Value]), (ALL, vec![Query, Key, Value, Output, Gate, Up, Down])]
}

fn workload(lora_targets: &[Matrix], frozen_weights: WeightFormat) -> Workload {
    workload_of(dimensions(), lora_targets, frozen_weights)
}

fn workload_of(model: impl Into<ModelSpec>, lora_targets: &[Matrix], frozen_weights: WeightFormat) -> Workload {
    let lora_targets = lora_targets.to_vec();
    let training = Training { lora_rank: Some(RANK as u64), lora_targets, frozen_weights, ..Training::default() };
    WorkloadSpec { model: model.into(), training }.workload()
}

fn group(pattern: &str) -> ParamGroup {
    ParamGroup::from_regex(pattern).expect("BUG: the pattern is valid")
}

fn scheme(format: WeightFormat, device: &Device) -> Option<QuantScheme> {
    let value = match format {
        WeightFormat::Full => return None,
        WeightFormat::Q8 => QuantValue::Q8S,
        WeightFormat::Q4 => QuantValue::Q4S,
    };
    Some(device.settings().quantization.scheme.with_value(value).per_block([BLOCK], ScaleDtype::F32))
}

fn adapted(pattern: &str, format: WeightFormat, device: &Device) -> Llama {
    let lora = Lora::new(RANK, 8.0).set_param_group(group(pattern));
    let model = Llama::new(&dimensions(), device);
    match scheme(format, device) {
        None => model.apply_lora(lora),
        Some(scheme) => {
            let mut quantizer = Quantizer::new(Calibration::MinMax, scheme);
            quantizer.set_param_group(group(ALL));
            model.apply_qlora(QLora::new(lora, quantizer))
        }
    }
}

#[test]
fn core_counts_the_parameters_of_adapters() {
    let _counting = measure::counting();
    for (pattern, roles) in targets() {
        let model = adapted(pattern, WeightFormat::Full, &measure::device(false));
        let parameters = workload(&roles, WeightFormat::Full).parameters;
        assert_eq!(parameters.trained(), trainable(&model) as u64, "{roles:?}");
    }
}

/// Values of the matrices within the layers.
fn hidden_values() -> u64 {
    LAYERS * WIDTH * (2 * WIDTH + 2 * KEYS + 3 * INNER)
}

#[test]
fn core_packs_weights_as_the_scheme_says() {
    let _counting = measure::counting();
    let device = Device::flex();
    for format in [WeightFormat::Q8, WeightFormat::Q4] {
        let scheme = scheme(format, &device).expect("BUG: it is packed");
        let block = scheme.block_size().expect("BUG: it has blocks").num_elements() as u64;
        assert_eq!(scheme.scale_dtype(), ScaleDtype::F32);
        let values = hidden_values();
        let bytes = values * scheme.size_bits_value() as u64 / 8 + values / block * 4;
        assert_eq!(workload(&[Matrix::Query], format).parameters.packed.0, bytes, "{format:?}");
    }
}

/// Bytes of kept tensors that have the size of a weight.
fn copies(by_size: &BTreeMap<usize, i64>) -> u64 {
    let kept = |size: u64| size * by_size.get(&(size as usize)).copied().unwrap_or(0) as u64;
    [WIDTH, KEYS, INNER].map(|width| kept(4 * WIDTH * width)).iter().sum()
}

#[test]
fn core_bounds_the_dense_copies_of_weights_by_those_of_the_first_layer() {
    let _counting = measure::counting();
    let [square, keys] = [WIDTH, KEYS].map(|width| 4 * WIDTH * width);
    for (pattern, roles) in targets() {
        for format in [WeightFormat::Full, WeightFormat::Q8, WeightFormat::Q4] {
            let parameters = workload(&roles, format).parameters;
            // Nothing tracked enters the first layer's queries, keys and values: only checkpointing keeps adapted ones.
            let adapts_keys = roles.contains(&Matrix::Key);
            let packs = format != WeightFormat::Full;
            let plain = square + keys + if adapts_keys || packs { keys } else { 0 };
            let checkpointed = if packs && !adapts_keys { keys } else { 0 };
            for (is_checkpointed, values, difference) in
                [(false, parameters.copies, plain), (true, parameters.copies_checkpointed, checkpointed)]
            {
                let device = measure::device(is_checkpointed);
                let model = adapted(pattern, format, &device);
                let loss = || model.loss(&dimensions(), SAMPLES, &device);
                measure::measure_step(loss);
                let kept = copies(&measure::measure_step(loss).by_size);
                let name = format!("{roles:?} {format:?} checkpointed {is_checkpointed}");
                println!("{name}: {kept} kept, {} counted", 4 * values);
                assert_eq!(4 * values, kept + difference, "{name}");
            }
        }
    }
}

#[test]
fn core_bounds_what_adapters_keep_for_each_sample() {
    let _counting = measure::counting();
    // Under checkpointing core counts the output of every frozen norm, even if no adapted matrix reads it.
    for (is_checkpointed, most) in [(false, 1.1), (true, 1.25)] {
        let device = measure::device(is_checkpointed);
        for (pattern, roles) in targets() {
            for format in [WeightFormat::Full, WeightFormat::Q8] {
                let model = adapted(pattern, format, &device);
                let name = format!("{roles:?} {format:?}");
                assert_bounds(&name, &workload(&roles, format), &model, &dimensions(), is_checkpointed, most);
            }
        }
    }
}

/// Asserts that core counts at least what a sample keeps, and less than so many times as much.
fn assert_bounds<N: Network>(
    name: &str,
    workload: &Workload,
    model: &N,
    dimensions: &N::Dimensions,
    is_checkpointed: bool,
    most: f64,
) {
    let device = measure::device(is_checkpointed);
    let measured = measure::kept_per_sample(|samples| model.loss(dimensions, samples, &device));
    let ratio = costs::kept(workload, is_checkpointed) as f64 / measured as f64;
    println!("{name} checkpointed {is_checkpointed}: {measured} bytes a sample, core / measured {ratio:.4}");
    assert!((1.0..most).contains(&ratio), "{name} checkpointed {is_checkpointed}: {ratio} of {measured} bytes");
}

/// Compares parameters and kept bytes of a model whose matrices of a pattern have adapters, plain and checkpointed.
fn check<N: Network>(dimensions: &N::Dimensions, targets: &[(&str, &[Matrix])], most: [f64; 2]) {
    let _counting = measure::counting();
    for (pattern, roles) in targets {
        let workload = workload_of(dimensions.clone(), roles, WeightFormat::Full);
        for (is_checkpointed, most) in [false, true].into_iter().zip(most) {
            let model = N::new(dimensions, &measure::device(is_checkpointed));
            let adapted = model.apply_lora(Lora::new(RANK, 8.0).set_param_group(group(pattern)));
            let name = format!("{dimensions:?} {roles:?}");
            assert_eq!(workload.parameters.trained(), trainable(&adapted) as u64, "{name}");
            assert_bounds(&name, &workload, &adapted, dimensions, is_checkpointed, most);
        }
    }
}

#[test]
fn core_bounds_what_adapters_keep_in_other_models() {
    use Matrix::{Down, Key, Output, Query, Up, Value};
    let few = (QUERY_AND_VALUE, &[Query, Value][..]);
    let all =
        (r"\.(query|key|value|output|linear_inner|linear_outer)\.weight$", &[Query, Key, Value, Output, Up, Down][..]);
    for dimensions in &encoder_decoder_dimensions() {
        check::<EncoderDecoder>(dimensions, &[few, all], [1.2, 1.1]);
    }
    // Core counts layers before the first adapter, which keep nothing.
    let all = (r"\.(query|key|value|output)\.weight$", &[Query, Key, Value, Output][..]);
    for dimensions in &diffusion_dimensions() {
        check::<Diffusion>(dimensions, &[few, all], [1.4, 1.35]);
    }
    check::<Vit>(&vit(), &[few], [1.2, 1.2]);
}
