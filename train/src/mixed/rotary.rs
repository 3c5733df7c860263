use burn::nn::{RotaryEncoding, RotaryEncodingConfig};
use burn::tensor::{Device, Tensor, TensorData};

/// Rotary position encodings whose angles are exact.
///
/// Burn 0.22.1 computes positions, frequencies and angles in the default float type. In bf16 positions above 256 are
/// rounded, and angles by up to some radians: over 1024 positions a component that is at most 1.41 comes out wrong by up to
/// 2.4, and in f16 by up to 0.25. Here angles are computed in f64, and only their sines and cosines are rounded.
///
/// [`RotaryEncoding::shift`] computes angles anew, as Burn does: do not use it with a 16-bit default type.
///
/// # Panics
///
/// Where `config.init` does: if the width is odd or theta is not positive.
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
