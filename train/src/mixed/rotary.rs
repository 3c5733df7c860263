use burn::nn::{RotaryEncoding, RotaryEncodingConfig};
use burn::tensor::{Device, Tensor, TensorData};

/// Rotary position encodings whose angles are exact.
///
/// Burn 0.22.1 computes positions, frequencies and angles in the default float type. bf16 rounds positions above 256,
/// and angles by up to some radians. Over 1024 positions, a component of at most 1.41 is off by up to 2.4, and in fp16
/// by up to 0.25. This function computes angles in fp64, and rounds only their sines and cosines.
///
/// [`RotaryEncoding::shift`] recomputes angles as Burn does: do not use it with a 16-bit default type.
///
/// # Panics
///
/// As `config.init`, if the width is odd or theta is not positive.
pub fn rotary(config: &RotaryEncodingConfig, device: &Device) -> RotaryEncoding {
    let mut encoding = config.init(device);
    let frequency = |pair: usize| f64::from(config.theta).powf(-(2.0 * pair as f64) / config.d_model as f64);
    let angles = (0..config.max_sequence_length).flat_map(|position| {
        // Both components of a pair turn by the same angle.
        (0..config.d_model).map(move |component| position as f64 * frequency(component / 2))
    });
    let table: Vec<f32> = angles.flat_map(|angle| [angle.cos() as f32, angle.sin() as f32]).collect();
    let table = TensorData::new(table, [config.max_sequence_length, config.d_model, 2]);
    encoding.freq_complex = Tensor::from_data(table, device);
    encoding
}

#[cfg(test)]
mod tests {
    use burn::nn::RotaryEncodingConfig;
    use burn::tensor::{Device, Tensor};

    use super::rotary;

    #[test]
    fn pairs_turn_by_powers_of_theta() {
        let device = Device::flex();
        let encoding = rotary(&RotaryEncodingConfig::new(8, 4).with_theta(100.0), &device);
        let turned = encoding.forward(Tensor::<2>::from_data([[1.0, 0.0, 1.0, 0.0]; 8], &device));
        let turned: Vec<f32> = turned.into_data().iter().collect();
        for (position, components) in (0_u8..).zip(turned.chunks(4)) {
            let angles = [f32::from(position), f32::from(position) / 10.0];
            let expected = [angles[0].cos(), angles[0].sin(), angles[1].cos(), angles[1].sin()];
            let is_near = components.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6);
            assert!(is_near, "{position}: {components:?}, not {expected:?}");
        }
    }
}
