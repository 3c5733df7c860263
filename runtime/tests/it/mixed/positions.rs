//! Rotary position encodings where the default float type is a 16-bit one.

use burn::nn::RotaryEncodingConfig;
use burn::tensor::{Device, FloatDType, Tensor};
use gpu_tuned::mixed::rotary;

use super::process;

const LENGTH: usize = 1024;
const WIDTH: usize = 16;

/// The largest error of a rotated vector of ones, Burn's and ours.
pub(crate) fn task() -> String {
    let device = Device::flex();
    let config = RotaryEncodingConfig::new(LENGTH, WIDTH);
    let ones = Tensor::<3>::ones([1, LENGTH, WIDTH], &device);
    let errors = [config.init(&device), rotary(&config, &device)].map(|encoding| {
        let found: Vec<f64> = encoding.forward(ones.clone()).cast(FloatDType::F64).into_data().iter::<f64>().collect();
        found.iter().zip(right()).map(|(found, right)| (found - right).abs()).fold(0.0, f64::max)
    });
    format!("{} {}", errors[0], errors[1])
}

/// Pairs `(1, 1)` turned by the position over `10000^(2 pair / width)`.
fn right() -> impl Iterator<Item = f64> {
    (0..LENGTH).flat_map(|position| {
        (0..WIDTH).map(move |component| {
            let pair = (component / 2) as f64;
            let angle = position as f64 / 10_000f64.powf(2.0 * pair / WIDTH as f64);
            if component % 2 == 0 { angle.cos() - angle.sin() } else { angle.sin() + angle.cos() }
        })
    })
}

#[test]
fn angles_are_exact_in_every_type() {
    // A value below 2 is rounded three times: cosine, sine and their sum.
    for (float, bound, burn_is_wrong) in [("f32", 1e-3, false), ("bf16", 0.02, true), ("f16", 0.003, true)] {
        let result = process::run(float, "rotary");
        let (burn, ours) = result.split_once(' ').expect("two numbers");
        let (burn, ours): (f64, f64) = (burn.parse().unwrap(), ours.parse().unwrap());
        assert!(ours < bound, "{float}: {ours}");
        // If Burn mends this, `rotary` is no longer needed.
        assert_eq!(burn > 0.1, burn_is_wrong, "{float}: {burn}");
        println!("{float}: Burn {burn}, here {ours}");
    }
}
