//! LoRA and QLoRA: trained, packed, copied and kept values in Burn, compared with core's.

use std::collections::BTreeMap;

use burn::{
    module::{Lora, Module, ParamGroup, QLora, Quantizer},
    tensor::{
        Device,
        quantization::{Calibration, QuantScheme, QuantValue, ScaleDtype},
    },
};
use gpu_tuned_core::workload::{Matrix, Training, WeightFormat, Workload, WorkloadSpec};
use models_tests::{
    measure::{self, trainable},
    transformer::{Dimensions, Llama},
};

const RANK: usize = 4;
const BLOCK: u8 = 32;
const ALL: &str = r"^layers\.\d+\.(query|key|value|output|down|swiglu\.linear_inner|swiglu\.linear_outer)\.weight$";
const QUERY_AND_VALUE: &str = r"^layers\.\d+\.(query|value)\.weight$";
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
    let lora_targets = lora_targets.to_vec();
    let training = Training { lora_rank: Some(RANK as u64), lora_targets, frozen_weights, ..Training::default() };
    WorkloadSpec { model: LLAMA.llama().into(), training }.workload()
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
                let sample = workload(&roles, format).sample;
                let checkpointed = sample.checkpointed_activations.filter(|_| is_checkpointed);
                let bytes = checkpointed.unwrap_or(sample.activations).0;
                let model = adapted(pattern, format, &device);
                let measured = measure::kept_per_sample(|samples| model.loss(&LLAMA, samples, &device));
                let ratio = bytes as f64 / measured as f64;
                let name = format!("{roles:?} {format:?} checkpointed {is_checkpointed}");
                println!("{name}: {measured} bytes a sample, core / measured {ratio:.4}");
                assert!((1.0..most).contains(&ratio), "{name}: {ratio} of {measured} bytes");
            }
        }
    }
}
