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

    use super::super::strip;

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
