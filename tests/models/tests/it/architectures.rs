//! Parameters and kept bytes of vision transformers, encoder-decoders, depthwise networks, mixtures of experts and
//! diffusion models.

use burn::{
    module::Module,
    tensor::{Device, Tensor},
};
use gpu_tuned_core::workload::WorkloadSpec;
use models_tests::{
    diffusion::{self, Diffusion},
    encoder_decoder::{self, EncoderDecoder},
    experts::{self, Llama},
    measure,
    mobile::{self, Mobile},
    vgg::{self, Vgg},
    vit::{self, Vit},
};

use crate::{bytes, parameters};

fn check<M: Module>(
    name: &str,
    described: impl Into<WorkloadSpec>,
    new: impl Fn(&Device) -> M,
    loss: impl Fn(&M, usize, &Device) -> Tensor<1>,
) {
    let spec = described.into();
    {
        let _counting = measure::counting();
        parameters::assert_same(spec.clone(), &new(&measure::device(false)), name);
    }
    bytes::check(name, &spec.workload(), 1, |device| {
        let (model, loss) = (new(&device), &loss);
        move |samples| loss(&model, samples, &device)
    });
}

#[test]
fn vision_transformers() {
    let small = vit::Dimensions {
        image: 64,
        patch: 8,
        layers: 2,
        d_model: 128,
        heads: 4,
        classes: 10,
        class_token: true,
        dropout: 0.0,
    };
    for d in [
        small,
        vit::Dimensions { class_token: false, layers: 1, ..small },
        vit::Dimensions { patch: 4, layers: 1, d_model: 64, dropout: 0.1, ..small },
    ] {
        check(
            &format!("{d:?}"),
            d.spec(),
            |device| Vit::new(&d, device),
            |model, samples, device| model.loss(&d, samples, device),
        );
    }
}

pub(crate) fn encoder_decoder_dimensions() -> [encoder_decoder::Dimensions; 3] {
    let small = encoder_decoder::Dimensions {
        layers: [2, 2],
        d_model: 128,
        d_ff: 384,
        heads: 4,
        vocab: 700,
        seq: [64, 48],
        spectrogram: None,
        dropout: 0.0,
    };
    [
        small,
        encoder_decoder::Dimensions { layers: [1, 3], seq: [32, 96], dropout: 0.1, ..small },
        encoder_decoder::Dimensions { layers: [2, 1], seq: [100, 40], spectrogram: Some(20), ..small },
    ]
}

#[test]
fn encoder_decoders() {
    for d in encoder_decoder_dimensions() {
        check(
            &format!("{d:?}"),
            d.spec(),
            |device| EncoderDecoder::new(&d, device),
            |model, samples, device| model.loss(&d, samples, device),
        );
    }
}

// Powers of two, which CUDA does not pad, from four channels on.
#[test]
fn depthwise_networks() {
    let small = mobile::Dimensions {
        image: 64,
        stem: 16,
        stages: vec![[16, 1], [32, 2]],
        expand: Some(vec![1, 4]),
        kernel: 3,
        squeeze: None,
        silu: false,
        last: 128,
        classes: 10,
    };
    for d in [
        small.clone(),
        mobile::Dimensions { squeeze: Some(4), silu: true, kernel: 5, ..small.clone() },
        mobile::Dimensions { expand: None, stages: vec![[32, 1], [64, 2], [128, 1]], ..small },
    ] {
        check(
            &format!("{d:?}"),
            d.spec(),
            |device| Mobile::new(&d, device),
            |model, samples, device| model.loss(&d, samples, device),
        );
    }
}

#[test]
fn llama_variants_and_mixtures_of_experts() {
    let small = experts::Dimensions {
        layers: 2,
        d_model: 128,
        d_ff: 300,
        heads: 6,
        kv_heads: 2,
        head_dim: 48,
        vocab: 500,
        seq: 96,
        qk_norm: false,
        norms_after: false,
        experts: None,
    };
    for d in [
        small,
        experts::Dimensions { qk_norm: true, ..small },
        experts::Dimensions { qk_norm: true, norms_after: true, head_dim: 16, ..small },
        experts::Dimensions { experts: Some([4, 2]), ..small },
        experts::Dimensions { experts: Some([8, 3]), layers: 1, ..small },
    ] {
        check(
            &format!("{d:?}"),
            d.spec(),
            |device| Llama::new(&d, device),
            |model, samples, device| model.loss(&d, samples, device),
        );
    }
}

// Powers of two, which CUDA does not pad.
pub(crate) fn diffusion_dimensions() -> [diffusion::Dimensions; 4] {
    let small = diffusion::Dimensions {
        image: 16,
        channels: 4,
        widths: vec![16, 32, 32],
        blocks: 2,
        attention: vec![2],
        heads: 1,
        context: None,
    };
    [
        small.clone(),
        diffusion::Dimensions { blocks: 1, attention: vec![1, 2], heads: 4, ..small.clone() },
        diffusion::Dimensions { image: 32, attention: vec![], widths: vec![32, 64], ..small.clone() },
        diffusion::Dimensions { attention: vec![2, 3], heads: 2, context: Some([24, 20]), ..small },
    ]
}

#[test]
fn diffusion_models() {
    for d in diffusion_dimensions() {
        check(
            &format!("{d:?}"),
            d.spec(),
            |device| Diffusion::new(&d, device),
            |model, samples, device| model.loss(&d, samples, device),
        );
    }
}

// Powers of two, which CUDA does not pad, from four channels on.
#[test]
fn convnets_without_norms() {
    let small = vgg::Dimensions {
        image: 32,
        stages: vec![[16, 1], [32, 2]],
        residual: false,
        pooled: 4,
        dense: vec![256, 128],
        classes: 10,
    };
    for d in [
        small.clone(),
        vgg::Dimensions { stages: vec![[8, 2]], pooled: 1, dense: vec![], ..small.clone() },
        vgg::Dimensions { stages: vec![[8, 1], [8, 1]], pooled: 8, dense: vec![4096], ..small.clone() },
        vgg::Dimensions { residual: true, dense: vec![], pooled: 1, ..small.clone() },
        vgg::Dimensions { residual: true, stages: vec![[32, 2], [64, 1]], ..small },
    ] {
        check(
            &format!("{d:?}"),
            d.spec(),
            |device| Vgg::new(&d, device),
            |model, samples, device| model.loss(&d, samples, device),
        );
    }
}
