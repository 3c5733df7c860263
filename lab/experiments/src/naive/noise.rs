//! Numbers with a normal distribution.

use std::f32::consts::TAU;

use rand::{RngExt, rngs::StdRng};

/// Draws two at a time, after Box and Muller.
#[derive(Default)]
pub(super) struct Normal(Option<f32>);

impl Normal {
    /// A number of mean 0 and deviation 1.
    pub(super) fn draw(&mut self, random: &mut StdRng) -> f32 {
        if let Some(second) = self.0.take() {
            return second;
        }
        // Never zero, so that the logarithm is finite.
        let radius = (-2.0 * (1.0 - random.random_range(0.0_f32..1.0)).ln()).sqrt();
        let (sine, cosine) = (TAU * random.random_range(0.0_f32..1.0)).sin_cos();
        self.0 = Some(radius * sine);
        radius * cosine
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::Normal;

    #[test]
    fn as_many_lie_within_one_deviation_as_should() {
        let (mut normal, mut random) = (Normal::default(), StdRng::seed_from_u64(1));
        let all: Vec<f32> = (0..100_000).map(|_| normal.draw(&mut random)).collect();
        let within = |most: f32| all.iter().filter(|value| value.abs() < most).count() as f64 / all.len() as f64;
        assert!((within(1.0) - 0.6827).abs() < 0.01 && (within(2.0) - 0.9545).abs() < 0.005);
        assert!(all.iter().all(|value| value.is_finite()));
        let mean = all.iter().sum::<f32>() / all.len() as f32;
        assert!(mean.abs() < 0.02, "{mean}");
    }
}
