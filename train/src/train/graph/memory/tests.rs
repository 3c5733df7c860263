use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};

use super::stored_parameters;
use crate::train::buffers::Buffers;
use crate::train::tests::parameters;

#[test]
fn parameters_are_copied_and_the_copy_can_be_differentiated() {
    let device = Device::flex().autodiff().gradient_checkpointing();
    let layers = || [(); 2].map(|()| LinearConfig::new(3, 2).init(&device));
    let (first, [new, frozen]) = (layers(), layers());
    let first: [Linear; 2] = [first[0].clone(), first[1].clone().no_grad()];
    let kept = stored_parameters(first.clone(), &first, false).expect("a copy");
    assert_eq!(parameters(&kept), parameters(&first));

    let mut second = [new, frozen];
    for (layer, known) in second.iter_mut().zip(&first) {
        layer.weight.id = known.weight.id;
        let (bias, known) = (layer.bias.as_mut(), known.bias.as_ref());
        bias.zip(known).into_iter().for_each(|(bias, known)| bias.id = known.id);
    }
    let kept = stored_parameters(kept, &second, true).expect("memory of its own");
    assert_eq!(parameters(&kept[0]), parameters(&second[0]));
    // A frozen layer does not change.
    assert_eq!(parameters(&kept[1]), parameters(&first[1]));
    let weight = kept[0].weight.val();
    assert_eq!(weight.gradient_checkpointing_strategy(), device.gradient_checkpointing_strategy());
    let loss = kept[0].forward(Tensor::<2>::ones([1, 3], &device)).sum();
    assert!(weight.grad(&loss.backward()).is_some());
}

#[test]
fn shared_parameters_cannot_be_kept() {
    let model = LinearConfig::new(3, 2).init(&Device::flex().autodiff());
    let kept = stored_parameters(model.clone(), &model, false).expect("a copy");
    let reader = kept.weight.val();
    assert!(stored_parameters(kept, &model, true).is_none());
    drop(reader);
}

fn device() -> Device {
    Device::flex().autodiff().gradient_checkpointing()
}

fn norm() -> BatchNorm {
    BatchNormConfig::new(2).init(&device())
}

fn pass(norm: &BatchNorm, scale: f32) {
    let rows = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 5.0]], &device());
    norm.forward(rows.mul_scalar(scale)).sum().backward();
}

/// Values of the model with all updates applied.
fn values(norm: &BatchNorm) -> Vec<f32> {
    parameters(&norm.valid())
}

#[test]
fn passes_in_the_kept_memory_change_statistics_as_plain_ones_do() {
    let (plain, replayed) = (norm(), norm());
    let before = Buffers::copy_of(&replayed).expect("statistics");
    let mut statistics = before.copied(&replayed);
    let mut pass_in_kept = |scale| {
        statistics.restore(&replayed);
        pass(&replayed, scale);
        let kept = std::mem::take(&mut statistics);
        statistics = kept.loaded(&replayed).expect("memory of its own");
        before.restore(&replayed);
        statistics.copied(&replayed)
    };
    for scale in [1.0, -2.0] {
        pass(&plain, scale);
        pass_in_kept(scale);
    }
    assert_eq!(values(&replayed), values(&norm()), "they are the model's only when they are handed back");
    pass(&plain, 3.0);
    let copies = pass_in_kept(3.0);
    pass_in_kept(4.0);
    copies.restore(&replayed);
    assert_eq!(values(&replayed), values(&plain));
}

#[test]
fn statistics_of_plain_passes_are_loaded() {
    let norm = norm();
    let before = Buffers::copy_of(&norm).expect("statistics");
    let statistics = before.copied(&norm);
    // The update of the second pass waits for a third one.
    for scale in [2.0, 3.0] {
        pass(&norm, scale);
    }
    let statistics = statistics.loaded(&norm).expect("memory of its own");
    let after = values(&norm);
    before.restore(&norm);
    assert_ne!(values(&norm), after);
    statistics.copied(&norm).restore(&norm);
    assert_eq!(values(&norm), after);
}

#[test]
fn shared_statistics_cannot_be_kept() {
    let norm = norm();
    let statistics = Buffers::copy_of(&norm).expect("statistics").copied(&norm);
    statistics.restore(&norm);
    // No pass has replaced the memory that was lent.
    assert!(statistics.loaded(&norm).is_none());
}

#[cfg(feature = "train")]
mod outputs {
    use burn::tensor::{Device, Int, Tensor};
    use burn::train::{ClassificationOutput, SequenceOutput};

    use crate::train::graph::memory::copied_output;

    #[test]
    fn copies_have_memory_of_their_own() {
        let device = Device::flex().autodiff();
        let loss = Tensor::<1>::full([1], 0.5, &device).require_grad();
        let targets = Tensor::<1, Int>::from_data([1, 0], &Device::flex());
        let output = ClassificationOutput { loss, output: Tensor::ones([2, 3], &device), targets };
        let copy = copied_output(&output).expect("an output of Burn's");
        assert!(copy.loss.can_mut() && copy.output.can_mut() && copy.targets.can_mut());
        assert!(!copy.loss.is_autodiff());
        assert_eq!(copy.output.into_data(), output.output.into_data());
        assert_eq!(copy.targets.into_data(), output.targets.into_data());
    }

    #[test]
    fn optional_parts_are_copied() {
        let device = Device::flex();
        let tokens = || Tensor::<2, Int>::ones([2, 3], &device);
        let sequence = |predictions| SequenceOutput {
            loss: Tensor::ones([1], &device),
            logits: Tensor::ones([2, 3, 4], &device),
            predictions,
            targets: tokens(),
        };
        let with = copied_output(&sequence(Some(tokens()))).expect("an output of Burn's");
        assert_eq!(with.predictions.expect("a copy").into_data(), tokens().into_data());
        assert!(copied_output(&sequence(None)).expect("an output of Burn's").predictions.is_none());
    }

    #[test]
    fn other_types_cannot_be_copied() {
        assert!(copied_output(&()).is_some());
        assert!(copied_output(&Tensor::<1>::ones([1], &Device::flex())).is_none());
    }
}
