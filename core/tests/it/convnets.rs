//! Parameters of convolutional networks as published; sources as in `published.rs`.

use gpu_tuned_core::workload::{Activation, Block, Convnet, Stage, Unet};

use crate::published::assert_published;

fn stages<const N: usize>(channels: [u64; N], blocks: [u64; N]) -> Vec<Stage> {
    channels.into_iter().zip(blocks).map(|(channels, blocks)| Stage { channels, blocks }).collect()
}

fn imagenet(block: Block, stages: Vec<Stage>) -> Convnet {
    Convnet { image: 224, classes: 1000, block, stages, ..Convnet::default() }
}

#[test]
fn resnets() {
    let resnet = |block, channels, blocks| Convnet {
        stem_kernel: 7,
        stem_stride: 4,
        batch_statistics: true,
        ..imagenet(block, stages(channels, blocks))
    };
    let basic = |blocks| resnet(Block::Basic, [64, 128, 256, 512], blocks);
    let bottleneck = |blocks| resnet(Block::Bottleneck, [256, 512, 1024, 2048], blocks);
    // Parameters, and multiplications of a forward pass: torchvision.
    for (name, model, parameters, multiplications) in [
        ("resnet18", basic([2, 2, 2, 2]), 11_689_512, 1.814e9),
        ("resnet34", basic([3, 4, 6, 3]), 21_797_672, 3.664e9),
        ("resnet50", bottleneck([3, 4, 6, 3]), 25_557_032, 4.089e9),
        ("resnet101", bottleneck([3, 4, 23, 3]), 44_549_160, 7.801e9),
        ("resnet152", bottleneck([3, 8, 36, 3]), 60_192_808, 11.514e9),
    ] {
        let forward = model.workload().sample.flops / 6.0;
        assert!((forward / multiplications - 1.0).abs() < 0.01, "{name}: {forward:e} against {multiplications:e}");
        assert_published([(name, model, parameters)]);
    }
}

#[test]
fn kept_bytes_are_near_those_burn_held_on_an_h200() {
    let model =
        Convnet { image: 64, classes: 10, stages: stages([96], [8]), batch_statistics: true, ..Convnet::default() };
    let ours = model.workload().sample.activations.mib();
    // Burn 0.22.1, bytes in use after the forward pass, for each sample.
    assert!((ours / 40.0 - 1.0).abs() < 0.01, "{ours} against 40.0 MiB");
}

#[test]
fn stems_shrink_the_image_by_their_stride() {
    // With `pooled` the dense layer's parameters do not depend on the image; its arithmetic is that of 8 x 8 pixels.
    let model = |image, stem_stride| Convnet {
        image,
        stem_kernel: 7,
        stem_stride,
        stem_channels: Some(64),
        ..imagenet(Block::Plain, stages([64], [1]))
    };
    let largest = |model: Convnet| model.workload().dominant_product.expect("a convolution").rows_per_sample;
    for stride in [1, 2, 3, 4, 5, 6, 7, 8] {
        let model = Convnet { stages: stages([512], [1]), ..model(8 * stride, stride) };
        assert_eq!(largest(model), 64, "{stride}");
    }
}

#[test]
fn convnets_with_blocks() {
    let mobile = |block, stages| Convnet {
        stem_kernel: 3,
        stem_stride: 2,
        stem_channels: Some(32),
        batch_statistics: true,
        ..imagenet(block, stages)
    };
    let inverted = |channels, blocks| Convnet {
        strides: vec![1, 2, 2, 2, 1, 2, 1],
        expand: vec![1, 6, 6, 6, 6, 6, 6],
        last_channels: Some(1280),
        ..mobile(Block::Inverted, stages::<7>(channels, blocks))
    };
    let efficientnet = Convnet {
        kernels: vec![3, 3, 5, 3, 5, 5, 3],
        squeeze: Some(4),
        activation: Activation::Silu,
        ..inverted([16, 24, 40, 80, 112, 192, 320], [1, 2, 2, 3, 3, 4, 1])
    };
    // torchvision; Keras Applications for MobileNet, trainable parameters.
    assert_published([
        ("mobilenet", mobile(Block::Separable, stages([64, 128, 256, 512, 1024], [1, 2, 2, 6, 2])), 4_231_976),
        ("mobilenet_v2", inverted([16, 24, 32, 64, 96, 160, 320], [1, 2, 3, 4, 3, 3, 1]), 3_504_872),
        ("efficientnet_b0", efficientnet, 5_288_548),
    ]);
}

#[test]
fn convnets_with_dense_layers() {
    let plain = |stages| Convnet { max_pooling: true, bias: true, norm: false, ..imagenet(Block::Plain, stages) };
    let vgg =
        |blocks| Convnet { pooled: 7, dense: vec![4096, 4096], ..plain(stages([64, 128, 256, 512, 512], blocks)) };
    let alexnet = Convnet {
        stem_kernel: 11,
        stem_stride: 8,
        stem_channels: Some(64),
        kernels: vec![5, 3, 3],
        strides: vec![2, 1, 2],
        pooled: 6,
        dense: vec![4096, 4096],
        ..plain(stages([192, 384, 256], [1, 1, 2]))
    };
    let lenet = Convnet {
        image: 32,
        channels: 1,
        classes: 10,
        kernels: vec![5],
        padding: false,
        pooled: 5,
        dense: vec![120, 84],
        ..plain(stages([6, 16], [1, 1]))
    };
    // torchvision; LeNet-5 with full connections in its second convolution.
    assert_published([
        ("alexnet", alexnet, 61_100_840),
        ("vgg11", vgg([1, 1, 2, 2, 2]), 132_863_336),
        ("vgg16", vgg([2, 2, 3, 3, 3]), 138_357_544),
        ("vgg16_bn", Convnet { norm: true, batch_statistics: true, ..vgg([2, 2, 3, 3, 3]) }, 138_365_992),
        ("vgg19", vgg([2, 2, 4, 4, 4]), 143_667_240),
        ("lenet5", lenet, 61_706),
    ]);
}

#[test]
fn u_nets() {
    // milesial/Pytorch-UNet with 3 channels, 1 class, transposed convolutions; a class more has 65 more.
    let model = |classes| Unet { image: 512, classes, widths: vec![64, 128, 256, 512, 1024], ..Unet::default() };
    assert_published([("1 class", model(1), 31_037_633), ("2 classes", model(2), 31_037_698)]);
}

#[test]
fn diffusion_models() {
    let ddpm = |widths: &[u64], attention| Unet {
        image: 256,
        classes: 3,
        widths: widths.to_vec(),
        blocks: Some(2),
        attention: vec![attention],
        ..Unet::default()
    };
    let small = Unet { image: 32, ..ddpm(&[128, 256, 256, 256], 2) };
    let stable_diffusion = Unet {
        image: 64,
        channels: 4,
        classes: 4,
        widths: vec![320, 640, 1280, 1280],
        attention: vec![1, 2, 3],
        heads: 8,
        context: Some(768),
        ..small.clone()
    };
    let large = ddpm(&[128, 128, 256, 256, 512, 512], 5);
    // "Structural Pruning for Diffusion Models" (Fang et al., 2023): 248.7 billion multiplications.
    let ratio = large.workload().sample.flops / 6.0 / 248.7e9;
    assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
    // `num_parameters()` of the class in diffusers.
    assert_published([
        ("google/ddpm-cifar10-32", small, 35_746_307),
        ("google/ddpm-celebahq-256", large, 113_673_219),
        ("stable-diffusion-v1-5/stable-diffusion-v1-5", stable_diffusion, 859_520_964),
    ]);
}
