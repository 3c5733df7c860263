use burn::config::Config;
use burn::module::Module;
use burn::nn as burn_nn;
use burn::nn::activation::ActivationConfig;
use burn::nn::attention as burn_attention;
use burn::nn::transformer as burn_transformer;
use burn::tensor::{Bool, Device, Distribution, Int, Tensor, Tolerance};
use gpu_tuned_kernels::nn;
use gpu_tuned_kernels::nn::attention::{MhaInput, MultiHeadAttentionConfig, generate_autoregressive_mask};
use gpu_tuned_kernels::nn::transformer::{
    PositionWiseFeedForwardConfig, TransformerEncoderConfig, TransformerEncoderInput,
};
use gpu_tuned_kernels::product;
use gpu_tuned_kernels::selection::was_library_operation_called;

pub(crate) fn device() -> Device {
    let device = Device::flex();
    device.seed(7);
    device
}

pub(crate) fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

thread_local! {
    /// Records of a test: with some features of Burn, parameters are read at their first use.
    static FOLDER: tempfile::TempDir = tempfile::tempdir().expect("a folder");
}

/// Loads the record of one module into another, through a file.
pub(crate) fn copied<A: Module, B: Module>(from: &A, to: B) -> B {
    let folder = FOLDER.with(|all| tempfile::tempdir_in(all.path()).expect("a folder").keep());
    let file = folder.join("model");
    from.clone().save_file(&file).expect("a record");
    to.load_file(&file)
}

pub(crate) fn equal<const D: usize>(one: Tensor<D>, other: Tensor<D>) {
    one.into_data().assert_eq(&other.into_data(), true);
}

#[test]
fn a_linear_layer_is_burns() {
    let device = device();
    for bias in [true, false] {
        let burns = burn_nn::LinearConfig::new(5, 3).with_bias(bias).init(&device);
        let ours = copied(&burns, nn::LinearConfig::new(5, 3).with_bias(bias).init(&device));
        let input = random([2, 4, 5], &device);
        equal(ours.forward(input.clone()), burns.forward(input));
        equal(copied(&ours, burns.clone()).weight.val(), burns.weight.val());
    }
    assert!(!was_library_operation_called(), "the library computes on CUDA devices only");
}

#[test]
fn an_embedding_is_burns() {
    let device = device();
    let burns = burn_nn::EmbeddingConfig::new(7, 4).init(&device);
    let ours = copied(&burns, nn::EmbeddingConfig::new(7, 4).init(&device));
    let tokens = Tensor::<2, Int>::from_data([[0, 6, 3], [3, 3, 1]], &device);
    equal(ours.forward(tokens.clone()), burns.forward(tokens));
}

#[test]
fn attention_is_burns_with_every_mask() {
    let device = device();
    for quiet in [false, true] {
        let burns = burn_attention::MultiHeadAttentionConfig::new(8, 2).with_dropout(0.0).with_quiet_softmax(quiet);
        let burns = burns.init(&device);
        let ours = MultiHeadAttentionConfig::new(8, 2).with_dropout(0.0).with_quiet_softmax(quiet).init(&device);
        let ours = copied(&burns, ours);
        let [query, key, value] = [3, 5, 5].map(|length| random([2, length, 8], &device));
        let pad = Tensor::<2, Bool>::from_data([[false, false, false, true, true], [false; 5]], &device);
        let attn = random([2, 3, 5], &device).greater_elem(1.0);
        let input = || MhaInput::new(query.clone(), key.clone(), value.clone());
        for input in [input(), input().mask_pad(pad.clone()), input().mask_pad(pad).mask_attn(attn)] {
            let (found, expected) = (ours.forward(input.clone()), burns.forward(input.into()));
            equal(found.weights, expected.weights);
            equal(found.context, expected.context);
        }
    }
}

#[test]
fn a_transformer_and_its_gradients_are_burns() {
    let device = device().autodiff();
    for norm_first in [false, true] {
        let burns = burn_transformer::TransformerEncoderConfig::new(8, 16, 2, 2).with_dropout(0.0);
        let burns = burns.with_norm_first(norm_first).init(&device);
        let ours = TransformerEncoderConfig::new(8, 16, 2, 2).with_dropout(0.0).with_norm_first(norm_first);
        let ours = copied(&burns, ours.init(&device));
        let input = random([2, 5, 8], &device);
        let input = TransformerEncoderInput::new(input).mask_attn(generate_autoregressive_mask(2, 5, &device));
        let (found, expected) = (ours.forward(input.clone()), burns.forward(input.into()));
        equal(found.clone().inner(), expected.clone().inner());
        let (found, expected) = (found.square().sum().backward(), expected.square().sum().backward());
        let gradient = |gradients: &_, weight: &burn::module::Param<Tensor<2>>| {
            weight.val().grad(gradients).expect("it is trained")
        };
        for (ours, burns) in ours.layers.iter().zip(&burns.layers) {
            equal(gradient(&found, &ours.mha.query.weight), gradient(&expected, &burns.mha.query.weight));
            equal(
                gradient(&found, &ours.pwff.linear_outer.weight),
                gradient(&expected, &burns.pwff.linear_outer.weight),
            );
        }
    }
}

#[test]
fn a_feed_forward_network_and_its_gradients_are_burns_with_each_activation() {
    let device = device().autodiff();
    for activation in [ActivationConfig::Relu, ActivationConfig::GeluApproximate, ActivationConfig::Gelu] {
        let burns = burn_transformer::PositionWiseFeedForwardConfig::new(5, 7).with_dropout(0.0);
        let burns = burns.with_activation(activation.clone()).init(&device);
        let ours = PositionWiseFeedForwardConfig::new(5, 7).with_dropout(0.0).with_activation(activation);
        let ours = copied(&burns, ours.init(&device));
        let input = random([2, 3, 5], &device).require_grad();
        let (found, expected) = (ours.forward(input.clone()), burns.forward(input.clone()));
        equal(found.clone().inner(), expected.clone().inner());
        let (found, expected) = (found.square().sum().backward(), expected.square().sum().backward());
        equal(input.grad(&found).expect("it is trained"), input.grad(&expected).expect("it is trained"));
        let bias = |layer: &burn_transformer::PositionWiseFeedForward, gradients: &_| {
            let bias = layer.linear_inner.bias.as_ref().expect("a bias");
            bias.val().grad(gradients).expect("it is trained")
        };
        equal(bias(&ours, &found), bias(&burns, &expected));
    }
}

#[test]
fn configs_are_written_and_shown_as_burns() {
    let burns = burn_transformer::PositionWiseFeedForwardConfig::new(4, 8).with_dropout(0.3);
    let ours = PositionWiseFeedForwardConfig::new(4, 8).with_dropout(0.3);
    assert_eq!(ours.to_string(), burns.to_string());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.json");
    burns.save(&file).expect("a config");
    assert!((PositionWiseFeedForwardConfig::load(&file).expect("Burn's config").dropout - 0.3).abs() < 1e-12);
    let device = device();
    assert_eq!(ours.init(&device).to_string(), burns.init(&device).to_string());
    assert_eq!(ours.init(&device).num_params(), burns.init(&device).num_params());
}

#[test]
fn a_batch_norm_and_its_running_statistics_are_burns() {
    let device = device().autodiff();
    let burns = burn_nn::BatchNormConfig::new(3).with_momentum(0.3).with_epsilon(1e-3).init(&device);
    let ours = copied(&burns, nn::BatchNormConfig::new(3).with_momentum(0.3).with_epsilon(1e-3).init(&device));
    for _ in 0..2 {
        let input = random([4, 3, 5, 2], &device);
        let (found, expected) = (ours.forward(input.clone()), burns.forward(input));
        equal(found.clone().inner(), expected.clone().inner());
        let (found, expected) = (found.exp().sum().backward(), expected.exp().sum().backward());
        for of in [|norm: &burn_nn::BatchNorm| norm.gamma.val(), |norm: &burn_nn::BatchNorm| norm.beta.val()] {
            equal(of(&ours).grad(&found).expect("it is trained"), of(&burns).grad(&expected).expect("it is trained"));
        }
    }
    equal(ours.running_mean.value_sync().inner(), burns.running_mean.value_sync().inner());
    equal(ours.running_var.value_sync().inner(), burns.running_var.value_sync().inner());
    let input = random([4, 3, 7], &device.clone().inner());
    equal(ours.valid().forward(input.clone()), burns.valid().forward(input));
}

#[test]
fn group_norms_are_burns() {
    let device = device().autodiff();
    for (affine, groups) in [(true, 3), (false, 2), (true, 6)] {
        let burns = burn_nn::GroupNormConfig::new(groups, 6).with_affine(affine).with_epsilon(1e-3).init(&device);
        let ours = nn::GroupNormConfig::new(groups, 6).with_affine(affine).with_epsilon(1e-3).init(&device);
        let instance = nn::InstanceNormConfig::new(6).with_affine(affine).with_epsilon(1e-3).init(&device);
        let input = random([4, 6, 5, 2], &device).require_grad();
        let expected = burns.forward(input.clone());
        equal(ours.forward(input.clone()).inner(), expected.clone().inner());
        if groups == 6 {
            equal(instance.forward(input.clone()).inner(), expected.clone().inner());
        }
        // The way to cuDNN, by Burn's batch norm, with other sums.
        let vectors = burns.gamma.as_ref().zip(burns.beta.as_ref()).map(|(gamma, beta)| (gamma.val(), beta.val()));
        let found = product::group_norm(input.clone(), vectors.clone(), groups, 1e-3);
        let near = |one: Tensor<4>, other: Tensor<4>| {
            one.into_data().assert_approx_eq::<f32>(&other.into_data(), Tolerance::absolute(1e-4));
        };
        near(found.clone().inner(), expected.clone().inner());
        let [found, expected] = [found, expected].map(|output| output.exp().sum().backward());
        near(input.grad(&found).expect("it is trained"), input.grad(&expected).expect("it is trained"));
        if let Some((gamma, _)) = vectors {
            let [found, expected] = [found, expected].map(|gradients| gamma.grad(&gradients).expect("it is trained"));
            found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-3));
        }
    }
}
