use std::thread::sleep;
use std::time::Duration;

use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned_observe::bench::Feed;

use super::super::super::{Step, Subject};
use super::super::sampler::DeviceSampler;
use super::{Repeats, Timing, alone, fed};

const STEP: Step = Step { batch: 16, micro_batches: 1, checkpointing: false, cuda_graphs: false };
const FORWARD: Duration = Duration::from_millis(20);

/// A subject with a slow forward pass.
fn slow(factor: f64) -> Subject<'static, Linear, Tensor<2>> {
    Subject::new(
        |device| LinearConfig::new(8, 1).init(device),
        || AdamWConfig::new().init(),
        |samples, device| Tensor::ones([samples, 8], device),
        move |model: &Linear, batch| {
            sleep(FORWARD);
            model.forward(batch).mean() * factor
        },
    )
}

fn timing<'t>(device: &'t Device, eye: &'t DeviceSampler) -> Timing<'t> {
    Timing { device, eye, spend: Duration::from_millis(300) }
}

#[test]
fn steps_and_their_parts_are_timed_apart() {
    let (device, eye) = (Device::flex(), DeviceSampler::default());
    let timed = alone(timing(&device, &eye), &slow(1.0), STEP).expect("it runs");
    let phases = timed.phases.expect("it is not fed");
    assert!(phases.forward_ms >= 20.0 && phases.backward_ms < phases.forward_ms, "{phases:?}");
    assert!(phases.optimizer_ms > 0.0 && phases.optimizer_ms < phases.forward_ms, "{phases:?}");
    assert!(timed.step_ms >= 20.0 && timed.repeats >= 3, "{timed:?}");
    let speed = timed.samples_per_s;
    assert!(speed.least <= speed.median && speed.median <= speed.most && speed.most <= 16.0 / 0.02, "{speed:?}");
    assert!(timed.is_finite && timed.waiting_percent.is_none() && timed.reserved_bytes.is_none());
}

#[test]
fn a_loss_that_is_no_finite_number_is_told() {
    let (device, eye) = (Device::flex(), DeviceSampler::default());
    assert!(!alone(timing(&device, &eye), &slow(f64::INFINITY), STEP).expect("it runs").is_finite);
}

#[test]
fn workers_hide_what_preparing_takes() {
    let (device, eye, subject) = (Device::flex(), DeviceSampler::default(), slow(1.0));
    let waiting = |workers| {
        let prepare = |_: usize| sleep(FORWARD);
        let feed = (&prepare as &super::Prepare<'_>, Feed { workers, prefetch: 2 });
        fed(timing(&device, &eye), &subject, STEP, feed).expect("it runs").waiting_percent.expect("it is fed")
    };
    let (none, two) = (waiting(0), waiting(2));
    assert!((5.0..95.0).contains(&none) && two < none / 2.0, "{none}% without, {two}% with workers");
}

#[test]
fn repeats_are_at_least_three_and_hardly_shorter_than_a_tenth_of_a_second() {
    let spend = Duration::from_secs(2);
    for (warm, steps, repeats) in [(1e-5, 100, 9), (1e-3, 100, 9), (0.03, 3, 9), (0.5, 1, 4), (40.0, 1, 3)] {
        assert_eq!(Repeats::for_duration(warm, spend), Repeats { steps, repeats }, "{warm} s");
    }
}
