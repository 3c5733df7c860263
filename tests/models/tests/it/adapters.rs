//! LoRA and QLoRA: trained, packed, copied and kept values in Burn, compared with core's.

use std::collections::BTreeMap;

use burn::{
    module::{Lora, Module, ParamGroup, QLora, Quantizer},
    tensor::{
        Device, Tensor,
        quantization::{Calibration, QuantScheme, QuantValue, ScaleDtype},
    },
};
use gpu_tuned_core::workload::{Matrix, ModelSpec, Training, WeightFormat, Workload, WorkloadSpec};
use models_tests::{
    diffusion::Diffusion,
    encoder_decoder::EncoderDecoder,
    measure::{self, trainable},
    transformer::{Dimensions, Llama},
    vit::{self, Vit},
};

use crate::architectures::{diffusion_dimensions, encoder_decoder_dimensions};

const RANK: usize = 4;
const BLOCK: u8 = 32;
const ALL: &str = r"^layers\.\d+\.(query|key|value|output|down|swiglu\.linear_inner|swiglu\.linear_outer)\.weight$";
const QUERY_AND_VALUE: &str = r"\.(query|value)\.weight$";
const SAMPLES: usize = 2;

/// No weight has as many bytes as anything else that is kept.
const LLAMA: Dimensions = Dimensions {
    layers: 2,
    d_model: 128,
    d_ff: 448,
    heads: 8,
    kv_heads: 2,
    vocab: 1100,
    seq: 96,
    dropout: 0.0,
    causal: true,
    tied: false,
    norm_first: true,
};

/// The matrices with adapters: in Burn, and in core.
fn targets() -> [(&'static str, Vec<Matrix>); 2] {
    use Matrix::{Down, Gate, Key, Output, Query, Up, Value};
    [(QUERY_AND_VALUE, vec![Query, Value]), (ALL, vec![Query, Key, Value, Output, Gate, Up, Down])]
}

fn workload(lora_targets: &[Matrix], frozen_weights: WeightFormat) -> Workload {
    workload_of(LLAMA.llama(), lora_targets, frozen_weights)
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
    let model = Llama::new(&LLAMA, device);
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
    let [width, keys, inner] = [LLAMA.d_model, LLAMA.d_model / LLAMA.heads * LLAMA.kv_heads, LLAMA.d_ff];
    (LLAMA.layers * width * (2 * width + 2 * keys + 3 * inner)) as u64
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
    let keys = LLAMA.d_model / LLAMA.heads * LLAMA.kv_heads;
    let sizes = [LLAMA.d_model, keys, LLAMA.d_ff].map(|width| 4 * LLAMA.d_model * width);
    sizes.iter().map(|size| *size as u64 * by_size.get(size).copied().unwrap_or(0) as u64).sum()
}

#[test]
fn core_bounds_the_dense_copies_of_weights_by_those_of_the_first_layer() {
    let _counting = measure::counting();
    let square = (4 * LLAMA.d_model * LLAMA.d_model) as u64;
    let keys = square / (LLAMA.heads / LLAMA.kv_heads) as u64;
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
                measure::measure_step(|| model.loss(&LLAMA, SAMPLES, &device));
                let kept = copies(&measure::measure_step(|| model.loss(&LLAMA, SAMPLES, &device)).by_size);
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
                let workload = workload(&roles, format);
                assert_bounds(&name, &workload, is_checkpointed, most, |samples| model.loss(&LLAMA, samples, &device));
            }
        }
    }
}

/// Asserts that core counts at least what a sample keeps, and less than so many times as much.
fn assert_bounds(
    name: &str,
    workload: &Workload,
    is_checkpointed: bool,
    most: f64,
    loss: impl FnMut(usize) -> Tensor<1>,
) {
    let sample = &workload.sample;
    let bytes = sample.checkpointed_activations.filter(|_| is_checkpointed).unwrap_or(sample.activations).0;
    let measured = measure::kept_per_sample(loss);
    let ratio = bytes as f64 / measured as f64;
    println!("{name} checkpointed {is_checkpointed}: {measured} bytes a sample, core / measured {ratio:.4}");
    assert!((1.0..most).contains(&ratio), "{name} checkpointed {is_checkpointed}: {ratio} of {measured} bytes");
}

/// Compares parameters and kept bytes of a model whose matrices of a pattern have adapters, with and without checkpointing.
fn check<M: Module>(
    model: impl Into<ModelSpec>,
    (pattern, roles): (&str, &[Matrix]),
    most: [f64; 2],
    new: impl Fn(&Device) -> M,
    loss: impl Fn(&M, usize, &Device) -> Tensor<1>,
) {
    let _counting = measure::counting();
    let workload = workload_of(model, roles, WeightFormat::Full);
    for (is_checkpointed, most) in [false, true].into_iter().zip(most) {
        let device = measure::device(is_checkpointed);
        let adapted = new(&device).apply_lora(Lora::new(RANK, 8.0).set_param_group(group(pattern)));
        let name = format!("{:?} {roles:?}", workload.spec.model);
        assert_eq!(workload.parameters.trained(), trainable(&adapted) as u64, "{name}");
        assert_bounds(&name, &workload, is_checkpointed, most, |samples| loss(&adapted, samples, &device));
    }
}

#[test]
fn core_bounds_what_adapters_keep_in_encoder_decoders() {
    use Matrix::{Down, Key, Output, Query, Up, Value};
    let all = r"\.(query|key|value|output|linear_inner|linear_outer)\.weight$";
    for d in encoder_decoder_dimensions() {
        for targets in [(QUERY_AND_VALUE, &[Query, Value][..]), (all, &[Query, Key, Value, Output, Up, Down])] {
            check(
                d.spec(),
                targets,
                [1.2, 1.1],
                |device| EncoderDecoder::new(&d, device),
                |model, samples, device| model.loss(&d, samples, device),
            );
        }
    }
}

// Core counts layers before the first adapter, which keep nothing.
#[test]
fn core_bounds_what_adapters_keep_in_diffusion_models() {
    use Matrix::{Key, Output, Query, Value};
    let all = r"\.(query|key|value|output)\.weight$";
    for d in diffusion_dimensions() {
        for targets in [(QUERY_AND_VALUE, &[Query, Value][..]), (all, &[Query, Key, Value, Output])] {
            check(
                d.spec(),
                targets,
                [1.4, 1.35],
                |device| Diffusion::new(&d, device),
                |model, samples, device| model.loss(&d, samples, device),
            );
        }
    }
}

#[test]
fn core_bounds_what_adapters_keep_in_vision_transformers() {
    use Matrix::{Query, Value};
    let d = vit::Dimensions {
        image: 64,
        patch: 8,
        layers: 2,
        d_model: 128,
        heads: 4,
        classes: 10,
        class_token: true,
        dropout: 0.0,
    };
    check(
        d.spec(),
        (QUERY_AND_VALUE, &[Query, Value]),
        [1.2, 1.2],
        |device| Vit::new(&d, device),
        |model, samples, device| model.loss(&d, samples, device),
    );
}
