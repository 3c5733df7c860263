//! Bytes of steps on the CPU, in a process of their own: the allocator counts for the whole process.

use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned::allocation::live_bytes;
use gpu_tuned::measure::{Step, Subject, held};

const WIDTH: usize = 1024;
/// Bytes of a weight, and of everything of its shape.
const WEIGHT: u64 = (4 * WIDTH * WIDTH) as u64;

#[test]
fn memory_is_what_the_tensors_of_a_step_take() {
    own_process::alone(memory_is_what_the_tensors_of_a_step_take, tensors_of_a_step);
}

fn tensors_of_a_step() {
    let subject = Subject::new(
        |device: &Device| LinearConfig::new(WIDTH, WIDTH).with_bias(false).init(device),
        || AdamWConfig::new().init(),
        |samples, device| Tensor::<2>::ones([samples, WIDTH], device),
        |model: &Linear, batch| model.forward(batch).mean(),
    );
    let step = |batch, micro_batches| {
        let step = Step { batch, micro_batches, checkpointing: false, cuda_graphs: false };
        held(&Device::flex(), &subject, step).expect("it fits")
    };
    // Threads hold on to scratch memory that they take once.
    step(4096, 2);
    let before = live_bytes();
    let small = step(1, 1);
    // The weight, two moments and a gradient; some of the optimizer's results besides.
    assert!((4 * WEIGHT..9 * WEIGHT).contains(&small.reserved_bytes.0), "{small:?}");
    // The weight and two moments after the forward pass.
    assert!((3 * WEIGHT..3 * WEIGHT + WEIGHT / 8).contains(&small.in_use_bytes.unwrap().0), "{small:?}");
    // A row is 4 KiB of input and as much of output.
    let large = step(1025, 1);
    let rows = large.in_use_bytes.unwrap() - small.in_use_bytes.unwrap();
    assert!((WEIGHT..=3 * WEIGHT).contains(&rows.0), "{rows}");
    let left = live_bytes().saturating_sub(before) as u64;
    assert!(left < WEIGHT / 8, "{left} bytes are left");
    // The first gradient is held while the second is worked out, where that and not the optimizer is the peak.
    let added_up = step(4096, 2).reserved_bytes - step(4096, 1).reserved_bytes;
    assert!((WEIGHT * 7 / 8..=WEIGHT * 9 / 8).contains(&added_up.0), "{added_up}");
}
