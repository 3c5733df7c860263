use burn::tensor::Device;

use super::{BITS, Gemm, Line, MatmulMath, ProbeError, SCALE, judge, pairs, probe, row};

/// A product on the host that adds `terms` in the order given by `order` and takes its operand through `round`.
fn emulate(k: usize, round: fn(f32) -> f32, order: fn(&[f32]) -> f32) -> Vec<Line> {
    let line = |bit| {
        let terms: Vec<f32> = row(bit, k).into_iter().map(|left| round(left) * round(SCALE.recip())).collect();
        Line { bit, pairs: pairs(bit, k), values: vec![order(&terms)] }
    };
    (1..=BITS).map(line).collect()
}

fn verdict(k: usize, round: fn(f32) -> f32, order: fn(&[f32]) -> f32) -> (MatmulMath, u32) {
    let probe = judge(Gemm { m: 64, k, n: 64 }, &emulate(k, round, order));
    (probe.math, probe.mantissa_bits)
}

fn to_nearest(value: f32, dropped: u32) -> f32 {
    let bits = value.to_bits();
    let half = (1 << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
    f32::from_bits((bits + half) & !((1 << dropped) - 1))
}

fn tf32(value: f32) -> f32 {
    to_nearest(value, 13)
}

fn tf32_away_from_zero(value: f32) -> f32 {
    f32::from_bits((value.to_bits() + (1 << 12)) & !((1 << 13) - 1))
}

fn tf32_truncated(value: f32) -> f32 {
    f32::from_bits(value.to_bits() & !((1 << 13) - 1))
}

fn bf16(value: f32) -> f32 {
    to_nearest(value, 16)
}

fn f16(value: f32) -> f32 {
    if value.abs() > 65504.0 { f32::INFINITY.copysign(value) } else { to_nearest(value, 13) }
}

fn in_turn(terms: &[f32]) -> f32 {
    terms.iter().sum()
}

fn backwards(terms: &[f32]) -> f32 {
    terms.iter().rev().sum()
}

fn evens_then_odds(terms: &[f32]) -> f32 {
    let evens: f32 = terms.iter().step_by(2).sum();
    evens + terms.iter().skip(1).step_by(2).sum::<f32>()
}

fn as_a_tree(terms: &[f32]) -> f32 {
    match terms {
        [] => 0.0,
        [term] => *term,
        _ => {
            let (left, right) = terms.split_at(terms.len() / 2);
            as_a_tree(left) + as_a_tree(right)
        }
    }
}

#[test]
fn the_cpu_computes_in_f32() {
    for (m, k, n) in [(64, 512, 96), (256, 4096, 8), (1, 2, 1), (3, 17, 5), (23, 1025, 40)] {
        let probe = probe(&Device::flex(), Gemm { m, k, n }).expect("the CPU has room");
        assert_eq!(
            (probe.math, probe.mantissa_bits, probe.worst_relative_error),
            (MatmulMath::Full, 23, 0.0),
            "{probe}"
        );
    }
}

#[test]
fn an_autodiff_device_is_probed_like_its_hardware() {
    let device = Device::flex().autodiff();
    assert_eq!(probe(&device, Gemm { m: 8, k: 8, n: 8 }).expect("the CPU has room").math, MatmulMath::Full);
}

#[test]
fn the_verdict_is_that_of_the_rounding_of_operands() {
    for k in [2, 7, 512, 100_000] {
        for order in [in_turn, backwards, evens_then_odds, as_a_tree] {
            assert_eq!(verdict(k, |value| value, order), (MatmulMath::Full, 23), "k = {k}");
        }
        for round in [tf32, tf32_away_from_zero, tf32_truncated] {
            assert_eq!(verdict(k, round, evens_then_odds), (MatmulMath::Tf32, 10), "k = {k}");
        }
    }
    let split = |value: f32| tf32(value) + tf32(value - tf32(value));
    assert_eq!(verdict(512, split, in_turn).0, MatmulMath::Full, "two parts in TF32");
    assert_eq!(verdict(512, bf16, in_turn), (MatmulMath::Lower, 7));
    assert_eq!(verdict(512, f16, in_turn), (MatmulMath::Lower, 0));
}

#[test]
fn the_error_is_that_of_the_rounding() {
    let shape = Gemm { m: 64, k: 512, n: 64 };
    let error = |round| judge(shape, &emulate(512, round, in_turn)).worst_relative_error;
    // Half a unit in the last place of each operand `1 + 2^-11`, over two magnitudes of 1.
    assert!((error(tf32) / (-12f64).exp2() - 1.0).abs() < 0.01);
    assert!((error(bf16) / (-9f64).exp2() - 1.0).abs() < 0.01);
    assert!((error(f16) - 1.0).abs() < f64::EPSILON);
}

#[test]
fn a_shape_without_sums_is_refused() {
    for (m, k, n) in [(0, 4, 4), (4, 4, 0), (4, 1, 4), (usize::MAX, 4, 4)] {
        assert!(matches!(probe(&Device::flex(), Gemm { m, k, n }), Err(ProbeError::Shape(_))), "{m}x{k}x{n}");
    }
}

#[test]
fn a_probe_is_printed_and_stored_whole() {
    let probe = judge(Gemm { m: 64, k: 512, n: 96 }, &emulate(512, tf32, in_turn));
    let text = "f32 products of 64x512x96 run in TF32: 10 of 23 mantissa bits, worst relative error 2.4e-4";
    assert_eq!(probe.to_string(), text);
    let json = serde_json::to_string(&probe).expect("serde");
    assert_eq!(serde_json::from_str::<super::MatmulProbe>(&json).expect("serde"), probe);
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_program_without_cuda_has_no_tf32_to_switch_off() {
    use super::switch_tf32_off;
    use crate::device::{OpenError, Place};
    assert!(matches!(switch_tf32_off(&Place::Only), Err(OpenError::WithoutCuda)));
}

#[cfg(any(feature = "cuda", feature = "cubecl"))]
mod of_properties {
    use cubecl::features::{CubeMmaConfig, Features, MmaConfig, TypeUsage};
    use cubecl::ir::{
        DeviceIdentity, DeviceProperties, ElemType, FloatKind, HardwareProperties, MemoryDeviceProperties,
    };
    use cubecl::profile::TimingMethod;

    use crate::device::tf32::strip;

    const HARDWARE: HardwareProperties = HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: 32,
        plane_size_max: 32,
        max_bindings: 1024,
        max_shared_memory_size: 232_448,
        max_cube_count: (u32::MAX, u16::MAX as u32, u16::MAX as u32),
        max_units_per_cube: 1024,
        max_cube_dim: (1024, 1024, 64),
        num_streaming_multiprocessors: Some(132),
        num_cpu_cores: None,
        last_level_cache_size: None,
        num_tensor_cores: Some(4),
        min_tensor_cores_dim: Some(8),
        max_vector_size: 16,
        cube_mma_reserved_shared_memory: 0,
    };

    /// A device with tensor cores for these.
    fn device(kinds: &[FloatKind]) -> DeviceProperties {
        let memory = MemoryDeviceProperties::new(1 << 30, 512);
        let identity = DeviceIdentity::default();
        let mut device = DeviceProperties::new(Features::default(), memory, HARDWARE, TimingMethod::Device, identity);
        device.register_type_usage(FloatKind::F32, TypeUsage::all());
        for kind in kinds {
            let (of, sum) = (ElemType::Float(*kind), ElemType::Float(FloatKind::F32));
            device.register_type_usage(*kind, TypeUsage::Conversion);
            let config = MmaConfig { a_type: of, b_type: of, cd_type: sum, m: 16, n: 16, k: 8 };
            device.features.matmul.cmma.insert(config);
            device.features.matmul.mma.insert(MmaConfig { n: 8, ..config });
            device.features.matmul.cube_mma.insert(CubeMmaConfig {
                a_type: of,
                b_type: of,
                cd_type: sum,
                m_granularity: 64,
                m_max: 64,
                n_granularity: 8,
                n_max: 256,
                k_granularity: 8,
                k_max: 8,
                units_per_block: None,
            });
        }
        device
    }

    #[test]
    fn a_device_without_tf32_keeps_the_tensor_cores_of_other_formats() {
        let mut stripped = device(&[FloatKind::BF16, FloatKind::TF32, FloatKind::F16]);
        strip(&mut stripped);
        let without = device(&[FloatKind::BF16, FloatKind::F16]);
        assert_eq!(stripped, without);
        assert_eq!(stripped.checksum(), without.checksum());
        assert_eq!(stripped.features.matmul.mma.len(), 2);
        let again = stripped.clone();
        strip(&mut stripped);
        assert_eq!(stripped, again);
    }
}
