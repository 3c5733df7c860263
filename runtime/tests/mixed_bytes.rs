//! What mixed precision takes beside f32 weights; alone in its process, because the allocator counts for all of it.

#![cfg(all(feature = "burn", feature = "counting-allocator"))]

use burn::nn::{Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor};
use gpu_tuned::allocation::{live_bytes, peak_bytes, restart_peak};
use gpu_tuned::mixed::{Half, Master, in_f32, widen, widen_onto};

const WIDTH: usize = 512;
const LAYERS: usize = 16;
/// Parameters.
const COUNT: f64 = (LAYERS * WIDTH * WIDTH) as f64;

/// Bytes for each parameter that `make` leaves behind and that it takes at most, and what it makes.
fn bytes<T>(make: impl FnOnce() -> T) -> (f64, f64, T) {
    let before = live_bytes() as f64;
    restart_peak();
    let result = make();
    ((live_bytes() as f64 - before) / COUNT, (peak_bytes() as f64 - before) / COUNT, result)
}

#[test]
fn a_copy_takes_2_bytes_for_each_parameter_and_its_widened_gradients_4() {
    let device = Device::flex().autodiff();
    let backward = |copy: &Vec<Linear>| {
        let batch = Tensor::<2>::ones([1, WIDTH], (&device, DType::BF16));
        let loss = in_f32(copy.iter().fold(batch, |hidden, layer| layer.forward(hidden))).square().mean();
        GradientsParams::from_grads(loss.backward(), copy)
    };
    let step = |master: &Master<Vec<Linear>>| {
        let (of_copy, _, copy) = bytes(|| master.compute_copy());
        let (narrow, _, gradients) = bytes(|| backward(&copy));
        let (widened, _, sum) = bytes(|| widen(gradients, &copy).unwrap());
        // A second micro-batch: its own gradients, and one layer's in f32 at a time.
        let gradients = backward(&copy);
        let (_, most, sum) = bytes(|| widen_onto(sum, gradients, &copy).unwrap());
        assert!(most < 4.0 * 3.0 / LAYERS as f64, "{most}");
        let (returned, ..) = bytes(|| drop(copy));
        drop(sum);
        [of_copy, narrow, narrow + widened, -returned]
    };
    let (of_master, _, master) = bytes(|| {
        let layer = LinearConfig::new(WIDTH, WIDTH).with_bias(false);
        let model: Vec<Linear> = (0..LAYERS).map(|_| layer.init(&device)).collect();
        Master::new(model, Half::Bf16).unwrap()
    });
    // Threads hold on to scratch memory that they take once.
    step(&master);
    let found = step(&master);
    for (found, right) in [of_master].into_iter().chain(found).zip([4.0, 2.0, 2.0, 4.0, 2.0]) {
        assert!((found - right).abs() < 0.1, "{found} bytes instead of {right}");
    }
}
