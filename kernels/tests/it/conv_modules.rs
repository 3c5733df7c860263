//! Modules of convolutions on the CPU: outputs, configs and records are Burn's.

use burn::config::Config;
use burn::nn::conv as burn_conv;
use burn::nn::{PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};
use burn::tensor::Device;
use gpu_tuned_kernels::nn::conv;
use proptest::prelude::*;

use crate::modules::{copied, device, equal, random};

#[test]
fn convolutions_are_burns() {
    let device = device();
    for bias in [true, false] {
        let burns = burn_conv::Conv1dConfig::new(4, 6, 3).with_bias(bias).with_groups(2).with_stride(2);
        let ours = conv::Conv1dConfig::new(4, 6, 3).with_bias(bias).with_groups(2).with_stride(2);
        let padding = PaddingConfig1d::Explicit(2, 1);
        let burns = burns.with_padding(padding.clone()).with_dilation(2).init(&device);
        let ours = copied(&burns, ours.with_padding(padding).with_dilation(2).init(&device));
        let input = random([2, 4, 9], &device);
        equal(ours.forward(input.clone()), burns.forward(input));
        equal(copied(&ours, burns.clone()).weight.val(), burns.weight.val());

        let burns = burn_conv::Conv2dConfig::new([4, 6], [3, 2]).with_bias(bias).with_groups(2).with_stride([2, 1]);
        let ours = conv::Conv2dConfig::new([4, 6], [3, 2]).with_bias(bias).with_groups(2).with_stride([2, 1]);
        let padding = PaddingConfig2d::Explicit(0, 1, 2, 3);
        let burns = burns.with_padding(padding.clone()).with_dilation([1, 2]).init(&device);
        let ours = copied(&burns, ours.with_padding(padding).with_dilation([1, 2]).init(&device));
        let input = random([2, 4, 5, 7], &device);
        equal(ours.forward(input.clone()), burns.forward(input));

        let burns = burn_conv::Conv3dConfig::new([2, 3], [1, 2, 3]).with_bias(bias).with_stride([1, 2, 1]);
        let ours = conv::Conv3dConfig::new([2, 3], [1, 2, 3]).with_bias(bias).with_stride([1, 2, 1]);
        let padding = PaddingConfig3d::Explicit(0, 1, 2);
        let burns = burns.with_padding(padding.clone()).init(&device);
        let ours = copied(&burns, ours.with_padding(padding).init(&device));
        let input = random([2, 2, 3, 4, 5], &device);
        equal(ours.forward(input.clone()), burns.forward(input));
    }
}

#[test]
fn transposed_convolutions_are_burns() {
    let device = device();
    for bias in [true, false] {
        let burns = burn_conv::ConvTranspose1dConfig::new([4, 6], 3).with_bias(bias).with_groups(2).with_stride(2);
        let ours = conv::ConvTranspose1dConfig::new([4, 6], 3).with_bias(bias).with_groups(2).with_stride(2);
        let burns = burns.with_padding(1).with_padding_out(1).with_dilation(2).init(&device);
        let ours = copied(&burns, ours.with_padding(1).with_padding_out(1).with_dilation(2).init(&device));
        let input = random([2, 4, 5], &device);
        equal(ours.forward(input.clone()), burns.forward(input));

        let burns = burn_conv::ConvTranspose2dConfig::new([3, 2], [3, 2]).with_bias(bias).with_stride([2, 3]);
        let ours = conv::ConvTranspose2dConfig::new([3, 2], [3, 2]).with_bias(bias).with_stride([2, 3]);
        let burns = burns.with_padding([1, 0]).with_padding_out([0, 2]).init(&device);
        let ours = copied(&burns, ours.with_padding([1, 0]).with_padding_out([0, 2]).init(&device));
        let input = random([2, 3, 4, 3], &device);
        equal(ours.forward(input.clone()), burns.forward(input));

        let burns = burn_conv::ConvTranspose3dConfig::new([2, 3], [1, 2, 3]).with_bias(bias).with_stride([1, 2, 1]);
        let ours = conv::ConvTranspose3dConfig::new([2, 3], [1, 2, 3]).with_bias(bias).with_stride([1, 2, 1]);
        let burns = burns.with_padding([0, 1, 1]).with_padding_out([0, 1, 0]).init(&device);
        let ours = copied(&burns, ours.with_padding([0, 1, 1]).with_padding_out([0, 1, 0]).init(&device));
        let input = random([2, 2, 3, 4, 5], &device);
        equal(ours.forward(input.clone()), burns.forward(input));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Odd and even kernels, with more padding behind than before.
    #[test]
    fn padding_to_the_same_size_is_burns(size in 1_usize..9, kernel in 1_usize..5, stride in 1_usize..4) {
        let device = Device::flex();
        let burns = burn_conv::Conv1dConfig::new(1, 1, kernel).with_stride(stride);
        let burns = burns.with_padding(PaddingConfig1d::Same).init(&device);
        let ours: conv::Conv1d = burns.clone().into();
        let input = random([1, 1, size], &device);
        equal(ours.forward(input.clone()), burns.forward(input));

        let burns = burn_conv::Conv2dConfig::new([1, 1], [kernel, 2]).with_stride([stride, 1]);
        let burns = burns.with_padding(PaddingConfig2d::Same).init(&device);
        let ours: conv::Conv2d = burns.clone().into();
        let input = random([1, 1, size, 4], &device);
        equal(ours.forward(input.clone()), burns.forward(input));

        // Burn panics for even kernels, and where padding before and behind differ.
        let padding = (size.div_ceil(stride) - 1) * stride + kernel;
        if kernel % 2 == 1 && padding.saturating_sub(size).is_multiple_of(2) {
            let burns = burn_conv::Conv3dConfig::new([1, 1], [kernel, 1, 3]).with_stride([stride, 1, 1]);
            let burns = burns.with_padding(PaddingConfig3d::Same).init(&device);
            let ours: conv::Conv3d = burns.clone().into();
            let input = random([1, 1, size, 2, 3], &device);
            equal(ours.forward(input.clone()), burns.forward(input));
        }
    }
}

#[test]
fn gradients_of_a_convolution_are_burns() {
    let device = device().autodiff();
    let burns = burn_conv::Conv2dConfig::new([3, 4], [3, 3]).with_padding(PaddingConfig2d::Same).init(&device);
    let ours =
        copied(&burns, conv::Conv2dConfig::new([3, 4], [3, 3]).with_padding(PaddingConfig2d::Same).init(&device));
    let input = random([2, 3, 5, 6], &device);
    let found = ours.forward(input.clone()).square().sum().backward();
    let expected = burns.forward(input).square().sum().backward();
    let of_weight = |conv: &burn_conv::Conv2d, gradients| conv.weight.val().grad(gradients).expect("it is trained");
    equal(of_weight(&ours, &found), of_weight(&burns, &expected));
    let of_bias = |conv: &burn_conv::Conv2d, gradients| {
        conv.bias.as_ref().expect("one by default").val().grad(gradients).expect("it is trained")
    };
    equal(of_bias(&ours, &found), of_bias(&burns, &expected));
}

#[test]
fn configs_of_convolutions_are_written_as_burns() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.json");
    let burns = burn_conv::Conv2dConfig::new([3, 4], [3, 3]).with_padding(PaddingConfig2d::Explicit(1, 2, 3, 4));
    burns.save(&file).expect("a config");
    let ours = conv::Conv2dConfig::load(&file).expect("Burn's config");
    assert_eq!(ours.to_string(), burns.to_string());
    let device = device();
    assert_eq!(ours.init(&device).to_string(), burns.init(&device).to_string());
}
