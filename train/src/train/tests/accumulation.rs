//! Steps of any size in micro-batches of any size, against one large batch.

use burn::optim::SgdConfig;
use proptest::prelude::*;

use super::{Network, Trainer, batch, device, furthest, parameters};

/// Means of at most 200 terms of about 1, added in another order. 200 roundings of 2⁻²⁴ in one direction would be
/// 1.2e-5; less than 1e-6 was measured. A sample that counts twice, or not at all, is a two-hundredth of such a mean.
const ROUNDING: f32 = 1e-5;

/// Parameters after one step, which moves them by the gradient, its loss, and how many micro-batches it was cut into.
fn stepped(samples: usize, micro_batch: usize, seed: u64) -> (Vec<f32>, f32, usize) {
    let mut trainer = Trainer::new(Network::new(&device(), false), SgdConfig::new().init(), device(), micro_batch);
    let step = trainer.step(1.0, batch(samples, seed), Network::loss).unwrap();
    (parameters(trainer.model()), step.loss, step.micro_batches)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_step_in_micro_batches_is_that_of_one_large_batch(
        samples in 1..200_usize,
        micro_batch in 1..220_usize,
        seed in 0..1000_u64,
    ) {
        let (whole, loss, one) = stepped(samples, samples, seed);
        let (cut, cut_loss, several) = stepped(samples, micro_batch, seed);
        prop_assert_eq!((one, several), (1, samples.div_ceil(micro_batch)));
        let apart = furthest(&cut, &whole);
        prop_assert!(apart < ROUNDING && (cut_loss - loss).abs() < ROUNDING, "{} {} {}", apart, cut_loss, loss);
    }
}
