//! Batch norms in micro-batches of one sample.

use burn::module::{Module, RunningState};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, PaddingConfig2d};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};

use super::{Network, Weights, batch, device, parameters, sgd, trained, values};
use crate::train::{StepError, Trainer};

fn with_norm(micro_batch: usize) -> Trainer<Network> {
    Trainer::new(Network::new(&device(), true), sgd(), device(), micro_batch)
}

#[test]
fn features_without_height_and_width_are_refused_in_micro_batches_of_one_sample() {
    let mut trainer = with_norm(1);
    let before = parameters(&trainer.model().valid());
    let error = trainer.step(0.1, batch(8, 0), Network::loss).unwrap_err();
    assert!(matches!(&error, StepError::OneValue { path } if path == "norm"), "{error}");
    assert!(error.to_string().contains("at least two samples"), "{error}");
    // Running statistics are those of before, too.
    assert_eq!(parameters(&trainer.model().valid()), before);
    assert!(with_norm(2).step(0.1, batch(8, 0), Network::loss).unwrap().applied);
    // Two micro-batches of equal sizes rather than one of two samples and one of one.
    assert!(with_norm(2).step(0.1, batch(3, 0), Network::loss).is_err());
    assert!(with_norm(3).step(0.1, batch(4, 0), Network::loss).unwrap().applied);
    // A norm that has trained.
    let mut trainer = with_norm(4);
    trained(&mut trainer, 3);
    let error = trainer.step(0.1, batch(1, 9), Network::loss).unwrap_err();
    assert!(matches!(&error, StepError::OneValue { .. }), "{error}");
}

/// A norm of images.
#[derive(Module, Debug)]
struct Images {
    conv: Conv2d,
    norm: BatchNorm,
}

impl Images {
    fn new(channels: usize) -> Self {
        let conv = Conv2dConfig::new([1, channels], [3, 3]).with_padding(PaddingConfig2d::Same);
        Self { conv: conv.init(&device()), norm: BatchNormConfig::new(channels).init(&device()) }.map(&mut Weights(3))
    }

    fn loss(&self, images: Tensor<4>) -> Tensor<1> {
        self.norm.forward(self.conv.forward(images)).square().sub_scalar(0.5).square().mean()
    }
}

fn images(count: usize) -> Tensor<4> {
    let pixels = Tensor::<1>::from_floats(values(5, count * 25).as_slice(), &Device::flex());
    pixels.reshape([count, 1, 5, 5])
}

#[test]
fn images_are_taken_one_by_one() {
    for channels in [1, 4] {
        let mut trainer = Trainer::new(Images::new(channels), SgdConfig::new().init(), device(), 1);
        for _ in 0..3 {
            assert!(trainer.step(0.1, images(3), Images::loss).unwrap().applied);
        }
    }
}

#[test]
#[ignore = "started by another test, which reads its warnings"]
fn takes_a_last_step_of_one_image() {
    let mut trainer = Trainer::new(Images::new(4), SgdConfig::new().init(), device(), 64);
    for _ in 0..2 {
        for samples in [64, 1] {
            assert!(trainer.step(0.1, images(samples), Images::loss).unwrap().applied);
        }
    }
    // A plan of one sample has no larger steps.
    let mut trainer = Trainer::new(Images::new(4), SgdConfig::new().init(), device(), 1);
    assert!(trainer.step(0.1, images(1), Images::loss).unwrap().applied);
}

#[test]
fn a_last_step_of_one_image_is_warned_of_once_with_the_remedy() {
    let output = own_process::run(&mut own_process::command(takes_a_last_step_of_one_image));
    let text = String::from_utf8_lossy(&output.stderr);
    let warnings: Vec<_> = text.lines().filter(|line| line.contains("a step has one sample")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("drop_last = true"), "{text}");
}

/// An image of one colour has a variance of zero, too.
#[test]
fn an_image_of_one_colour_among_others_is_taken() {
    for at in [0, 1, 2] {
        let mut trainer = Trainer::new(Images::new(4), SgdConfig::new().init(), device(), 1);
        let with_black = images(3).slice_fill(at..at + 1, 0.0);
        assert!(trainer.step(0.1, with_black, Images::loss).unwrap().applied, "{at}");
    }
}

/// A model whose loss is centred by a moving average of its outputs, as DINO's teacher is.
#[derive(Module, Debug)]
struct Centred {
    conv: Conv2d,
    center: RunningState<Tensor<1>>,
}

impl Centred {
    fn new() -> Self {
        let Images { conv, .. } = Images::new(4);
        Self { conv, center: RunningState::new(Tensor::zeros([1], &device())) }
    }

    fn loss(&self, images: Tensor<4>) -> Tensor<1> {
        let (output, center) = (self.conv.forward(images), self.center.value_sync());
        self.center.update((center.clone() * 0.9 + output.clone().mean() * 0.1).detach());
        (output - center.detach().unsqueeze()).square().mean()
    }
}

#[test]
#[ignore = "started by another test, which reads its warnings"]
fn takes_steps_with_a_running_state() {
    let micro_batch = std::env::var("MICRO_BATCH").expect("the test sets it").parse().expect("a number");
    let mut trainer = Trainer::new(Centred::new(), SgdConfig::new().init(), device(), micro_batch);
    for _ in 0..2 {
        assert!(trainer.step(0.1, images(8), Centred::loss).unwrap().applied);
    }
}

#[test]
fn a_running_state_in_several_micro_batches_is_warned_of_once() {
    for (micro_batch, warnings) in [("8", 0), ("4", 1)] {
        let mut command = own_process::command(takes_steps_with_a_running_state);
        let output = own_process::run(command.env("MICRO_BATCH", micro_batch));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.matches("`center` is a running state").count(), warnings, "{text}");
    }
}
