//! Memory of mixed precision beside f32 weights, in a process of its own: the allocator counts for the whole process.

use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{DType, Device, Tensor};
use gpu_tuned::allocation::{live_bytes, peak_bytes, restart_peak};
use gpu_tuned::measure::{Step, Subject, held};
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

fn model(device: &Device) -> Vec<Linear> {
    let layer = LinearConfig::new(WIDTH, WIDTH).with_bias(false);
    (0..LAYERS).map(|_| layer.init(device)).collect()
}

fn batch(samples: usize, device: &Device) -> Tensor<2> {
    Tensor::ones([samples, WIDTH], (device, DType::BF16))
}

#[expect(clippy::ptr_arg, reason = "the model is such a vector")]
fn loss(model: &Vec<Linear>, batch: Tensor<2>) -> Tensor<1> {
    in_f32(model.iter().fold(batch, |hidden, layer| layer.forward(hidden))).square().mean()
}

#[test]
fn measured_bytes_are_those_of_a_loop_by_hand() {
    own_process::alone(measured_bytes_are_those_of_a_loop_by_hand, measured_and_by_hand);
}

fn measured_and_by_hand() {
    let device = Device::flex();
    let subject = Subject::new(model, || AdamWConfig::new().init(), batch, loss).mixed(Half::Bf16);
    for micro_batches in [1, 3] {
        let step = Step { batch: 4, micro_batches, checkpointing: false, cuda_graphs: false };
        let measured = held(&device, &subject, step).unwrap().reserved_bytes.0 as f64 / COUNT;
        let taken = by_hand(&device.clone().autodiff(), micro_batches);
        // Weights, their copies, two moments, and gradients: 4 + 2 + 8 + 4 bytes, and what the optimizer computes with.
        assert!(taken > 18.0 && (measured / taken - 1.0).abs() < 0.03, "{measured} measured, {taken} taken");
    }
}

/// Bytes for each parameter that the third step takes at most.
fn by_hand(device: &Device, micro_batches: usize) -> f64 {
    let before = live_bytes() as f64;
    let mut optimizer = AdamWConfig::new().init();
    let mut master = Master::new(model(device), Half::Bf16).unwrap();
    for _ in 0..3 {
        restart_peak();
        let copy = master.compute_copy();
        let mut sum = GradientsParams::new();
        for _ in 0..micro_batches {
            let gradients = GradientsParams::from_grads(loss(&copy, batch(4, device)).backward(), &copy);
            sum = widen_onto(sum, gradients, &copy).unwrap();
        }
        drop(copy);
        master = master.update(|model| optimizer.step(1e-6, model, sum));
    }
    (peak_bytes() as f64 - before) / COUNT
}

#[test]
fn a_copy_takes_2_bytes_for_each_parameter_and_its_widened_gradients_4() {
    own_process::alone(a_copy_takes_2_bytes_for_each_parameter_and_its_widened_gradients_4, copies);
}

fn copies() {
    let device = Device::flex().autodiff();
    let backward = |copy: &Vec<Linear>| GradientsParams::from_grads(loss(copy, batch(1, &device)).backward(), copy);
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
    let (of_master, _, master) = bytes(|| Master::new(model(&device), Half::Bf16).unwrap());
    // Threads hold on to scratch memory that they take once.
    step(&master);
    let found = step(&master);
    for (found, right) in [of_master].into_iter().chain(found).zip([4.0, 2.0, 2.0, 4.0, 2.0]) {
        assert!((found - right).abs() < 0.1, "{found} bytes instead of {right}");
    }
}
