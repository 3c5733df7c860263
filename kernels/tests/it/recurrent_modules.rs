//! Modules of recurrent layers on the CPU: outputs, gradients, configs and records are Burn's.

use burn::config::Config;
use burn::nn as burn_nn;
use burn::nn::LstmState;
use burn::nn::gru as burn_gru;
use burn::tensor::{Device, Tensor};
use gpu_tuned_kernels::nn;
use gpu_tuned_kernels::nn::gru;

use crate::modules::{copied, device, equal, random};

fn equal_states<const D: usize>(one: LstmState<D>, other: LstmState<D>) {
    equal(one.cell, other.cell);
    equal(one.hidden, other.hidden);
}

fn state<const D: usize>(shape: [usize; D], device: &Device) -> LstmState<D> {
    LstmState::new(random(shape, device), random(shape, device))
}

#[test]
fn lstms_are_burns() {
    let device = device();
    for (bias, batch_first, reverse) in [(true, true, false), (false, false, true), (true, false, false)] {
        let burns = burn_nn::LstmConfig::new(3, 4, bias).with_batch_first(batch_first).with_reverse(reverse);
        let ours = nn::LstmConfig::new(3, 4, bias).with_batch_first(batch_first).with_reverse(reverse);
        let burns = burns.init(&device);
        let ours = copied(&burns, ours.init(&device));
        let (batch, steps) = (2, 5);
        let input = random(if batch_first { [batch, steps, 3] } else { [steps, batch, 3] }, &device);
        for state in [None, Some(state([batch, 4], &device))] {
            let (found, expected) = (ours.forward(input.clone(), state.clone()), burns.forward(input.clone(), state));
            equal(found.0, expected.0);
            equal_states(found.1, expected.1);
        }
        let back = copied(&ours, burns.clone());
        equal(back.cell_gate.hidden_transform.weight.val(), burns.cell_gate.hidden_transform.weight.val());

        let burns = burn_nn::BiLstmConfig::new(3, 4, bias).with_batch_first(batch_first).init(&device);
        let ours = nn::BiLstmConfig::new(3, 4, bias).with_batch_first(batch_first).init(&device);
        let ours = copied(&burns, ours);
        for state in [None, Some(state([2, batch, 4], &device))] {
            let (found, expected) = (ours.forward(input.clone(), state.clone()), burns.forward(input.clone(), state));
            equal(found.0, expected.0);
            equal_states(found.1, expected.1);
        }
    }
}

#[test]
fn grus_are_burns() {
    let device = device();
    for (bias, batch_first, reset_after) in [(true, true, true), (false, false, true), (true, true, false)] {
        let burns = burn_gru::GruConfig::new(3, 4, bias).with_reset_after(reset_after).init(&device);
        let ours = gru::GruConfig::new(3, 4, bias).with_reset_after(reset_after).init(&device);
        let ours = copied(&burns, ours);
        let input = random([2, 5, 3], &device);
        for state in [None, Some(random([2, 4], &device))] {
            equal(ours.forward(input.clone(), state.clone()), burns.forward(input.clone(), state));
        }
        let back = copied(&ours, burns.clone());
        equal(back.new_gate.input_transform.weight.val(), burns.new_gate.input_transform.weight.val());

        let burns = burn_gru::BiGruConfig::new(3, 4, bias).with_reset_after(reset_after).with_batch_first(batch_first);
        let ours = gru::BiGruConfig::new(3, 4, bias).with_reset_after(reset_after).with_batch_first(batch_first);
        let burns = burns.init(&device);
        let ours = copied(&burns, ours.init(&device));
        for state in [None, Some(random([2, if batch_first { 2 } else { 5 }, 4], &device))] {
            let (found, expected) = (ours.forward(input.clone(), state.clone()), burns.forward(input.clone(), state));
            equal(found.0, expected.0);
            equal(found.1, expected.1);
        }
    }
}

#[test]
fn joint_lstms_without_steps_are_burns() {
    let device = device();
    let layer = burn_nn::LstmConfig::new(3, 4, true).init(&device);
    for state in [None, Some(state([2, 4], &device))] {
        let input = random([2, 0, 3], &device);
        let (found, expected) =
            (nn::joint_lstm(&layer, input.clone(), state.clone()), layer.forward(input, state.clone()));
        assert_eq!((found.0.dims(), expected.0.dims()), ([2, 0, 4], [2, 0, 4]));
        equal_states(found.1, expected.1);
    }
}

#[test]
fn gradients_of_an_lstm_are_burns() {
    let device = device().autodiff();
    let burns = burn_nn::LstmConfig::new(3, 4, true).init(&device);
    let ours = copied(&burns, nn::LstmConfig::new(3, 4, true).init(&device));
    let input = random([2, 5, 3], &device);
    let loss = |output: Tensor<3>| output.square().sum().backward();
    let (found, expected) = (loss(ours.forward(input.clone(), None).0), loss(burns.forward(input, None).0));
    for gate in [|it: &burn_nn::Lstm| it.input_gate.clone(), |it: &burn_nn::Lstm| it.output_gate.clone()] {
        let gradient =
            |layer, gradients| gate(layer).hidden_transform.weight.val().grad(gradients).expect("it is trained");
        equal(gradient(&ours, &found), gradient(&burns, &expected));
    }
}

#[test]
fn configs_of_recurrent_layers_are_written_as_burns() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.json");
    let burns = burn_nn::LstmConfig::new(3, 4, true).with_clip(Some(0.5)).with_reverse(true);
    burns.save(&file).expect("a config");
    let ours = nn::LstmConfig::load(&file).expect("Burn's config");
    assert_eq!(ours.to_string(), burns.to_string());
    let device = device();
    assert_eq!(ours.init(&device).to_string(), burns.init(&device).to_string());
    let burns = burn_gru::GruConfig::new(3, 4, false).with_reset_after(false);
    assert_eq!(gru::GruConfig::new(3, 4, false).with_reset_after(false).to_string(), burns.to_string());
}
