//! Memory of optimizer steps in groups, in a process of their own: the allocator counts for the whole process.

use std::sync::{Arc, Mutex};

use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamW, AdamWConfig, Optimizer};
use burn::tensor::{Device, FloatDType, Tensor};
use gpu_tuned::Bytes;
use gpu_tuned::allocation::{live_bytes, peak_bytes, restart_peak};
use gpu_tuned::mixed::{Half, in_f32};
use gpu_tuned::train::Trainer;

const WIDTH: usize = 512;
const LAYERS: usize = 16;

/// Takes note of the bytes that are live when its first parameter is changed.
#[derive(Clone)]
struct Watched {
    inner: AdamW,
    before: Arc<Mutex<Option<f64>>>,
}

impl Optimizer for Watched {
    type State<const D: usize> = <AdamW as Optimizer>::State<D>;

    fn step<const D: usize>(
        &self,
        rate: f64,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        self.before.lock().unwrap().get_or_insert_with(|| {
            restart_peak();
            live_bytes() as f64
        });
        self.inner.step(rate, tensor, gradient, state)
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        AdamW::to_device(state, device)
    }
}

/// Bytes that an optimizer step takes at most beside what is there, for each value of one layer.
fn taken(half: Option<Half>, held_twice: Option<Bytes>) -> f64 {
    let device = Device::flex().autodiff();
    let layer = LinearConfig::new(WIDTH, WIDTH).with_bias(false);
    let model: Vec<Linear> = (0..LAYERS).map(|_| layer.init(&device)).collect();
    let before = Arc::new(Mutex::new(None));
    let optimizer = Watched { inner: AdamWConfig::new().build(), before: Arc::clone(&before) };
    let mut trainer = Trainer::new(model, optimizer.into(), device.clone(), 1);
    if let Some(half) = half {
        trainer = trainer.mixed(half).unwrap();
    }
    if let Some(most) = held_twice {
        trainer = trainer.hold_twice(most);
    }
    let float = half.map_or(FloatDType::F32, Half::float);
    let mut step = || {
        *before.lock().unwrap() = None;
        let batch = Tensor::<2>::ones([1, WIDTH], &device);
        let loss = |model: &Vec<Linear>, batch: Tensor<2>| {
            in_f32(model.iter().fold(batch.cast(float), |hidden, layer| layer.forward(hidden))).square().mean()
        };
        assert!(trainer.step(1e-3, batch, loss).unwrap().applied);
        (peak_bytes() as f64 - before.lock().unwrap().unwrap()) / (WIDTH * WIDTH) as f64
    };
    // The state comes with the first step; whether parameters move is looked after in it.
    step();
    step()
}

#[test]
fn in_groups_one_group_is_held_twice_and_no_more() {
    own_process::alone(in_groups_one_group_is_held_twice_and_no_more, groups);
}

fn groups() {
    let layer = Bytes((WIDTH * WIDTH * 16) as u64);
    for half in [None, Some(Half::Bf16)] {
        let (at_once, in_groups) = (taken(half, None), taken(half, Some(layer)));
        // A parameter and two values of state for each layer, and a 16-bit copy, while gradients are released.
        let each = if half.is_some() { 10.0 } else { 8.0 };
        assert!(at_once > each * (LAYERS - 1) as f64, "{at_once}");
        // Parameters of one layer, and their gradients and moments.
        assert!(in_groups < 20.0, "{in_groups}");
    }
}
