//! Memory replayed from runs on the CPU against what dry runs on an H200 reserved (Burn 0.22.1, f32, `AdamW`, 12 steps).

use burn::{
    module::Module,
    nn::{
        Embedding, EmbeddingConfig, Linear, LinearConfig,
        transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
    },
    optim::{AdamWConfig, ModuleOptimizer},
    tensor::{Device, Int, Tensor},
};
use gpu_tuned::{
    Bytes,
    measure::{Subject, Trace},
};
use gpu_tuned_core::workload::Block;
use models_tests::{
    convnet::{self, Convnet},
    cross_entropy,
    recurrent::{self, Recurrent},
};

const H200: Bytes = Bytes::from_mib(143_771);
/// Steps on a GPU differ from run to run by what autotune chose.
const WORST: f64 = 0.15;
const MEDIAN: f64 = 0.05;

/// Reserved MiB at micro-batches, with and without checkpointing.
struct Reserved {
    checkpointing: bool,
    mib: &'static [(u64, u64)],
}

fn optimizer() -> ModuleOptimizer {
    AdamWConfig::new().init()
}

/// Holds what is replayed against what was reserved.
fn check<M: Module, B: Clone>(subject: &Subject<'_, M, B>, reserved: &[Reserved]) {
    let mut errors = Vec::new();
    for Reserved { checkpointing, mib } in reserved {
        let trace = Trace::record(&Device::flex(), subject, 1, *checkpointing).expect("two small micro-batches");
        for &(batch, mib) in *mib {
            let replayed = trace.replayed(batch, 4, H200).expect("no tensor is large");
            let error = replayed.memory().reserved_bytes.mib() / mib as f64 - 1.0;
            println!("checkpointing {checkpointing}, batch {batch}: {:+.1}% of {mib} MiB", error * 100.0);
            errors.push(error.abs());
        }
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors[errors.len() / 2] <= MEDIAN && errors[errors.len() - 1] <= WORST, "{errors:?}");
}

#[test]
fn a_recurrent_network() {
    let dimensions = recurrent::Dimensions {
        input: 64,
        hidden: 256,
        layers: 3,
        seq: 60,
        classes: 10,
        vocab: 0,
        every_step: false,
        gru: false,
        bidirectional: false,
    };
    let subject = Subject::new(
        |device| Recurrent::new(&dimensions, device),
        optimizer,
        |samples, device| Tensor::<3>::zeros([samples, 60, 64], device),
        |model: &Recurrent, sequences| cross_entropy(model.logits(&dimensions, sequences)),
    );
    let plain = Reserved { checkpointing: false, mib: &[(64, 194), (256, 605), (512, 1230)] };
    let checkpointed = Reserved { checkpointing: true, mib: &[(64, 167), (256, 525)] };
    check(&subject, &[plain, checkpointed]);
}

fn convolutions(image: usize, stages: Vec<[usize; 2]>, block: Block, reserved: &[Reserved]) {
    let dimensions = convnet::Dimensions { image, stages, classes: 10, kind: block, group_norm: false, stem: false };
    let subject = Subject::new(
        |device| Convnet::new(&dimensions, device),
        optimizer,
        |samples, device| Tensor::<4>::zeros([samples, 3, image, image], device),
        |model: &Convnet, images| cross_entropy(model.logits(images)),
    );
    check(&subject, reserved);
}

#[test]
fn a_residual_network() {
    let plain = Reserved { checkpointing: false, mib: &[(32, 739), (64, 1160), (160, 2464), (320, 4854)] };
    let checkpointed = Reserved { checkpointing: true, mib: &[(32, 658), (64, 999), (160, 2464), (320, 4935)] };
    let stages = vec![[64, 2], [128, 2], [256, 2], [512, 2]];
    convolutions(32, stages, Block::Basic, &[plain, checkpointed]);
}

// Of 96 channels, which CUDA pads to 128.
#[test]
fn convolutions_with_padded_rows() {
    let plain = Reserved { checkpointing: false, mib: &[(16, 1144), (48, 3376), (64, 4496), (96, 6736)] };
    convolutions(64, vec![[96, 8]], Block::Plain, &[plain]);
}

#[derive(Module, Debug)]
struct Encoder {
    tokens: Embedding,
    layers: TransformerEncoder,
    head: Linear,
}

#[test]
#[ignore = "takes minutes"]
fn a_transformer() {
    let subject = Subject::new(
        |device| Encoder {
            tokens: EmbeddingConfig::new(8192, 512).init(device),
            layers: TransformerEncoderConfig::new(512, 2048, 8, 6).with_dropout(0.0).init(device),
            head: LinearConfig::new(512, 8192).init(device),
        },
        optimizer,
        |samples, device| Tensor::<2, Int>::zeros([samples, 256], device),
        |model: &Encoder, tokens| {
            let embedded = TransformerEncoderInput::new(model.tokens.forward(tokens));
            cross_entropy(model.head.forward(model.layers.forward(embedded)).flatten(0, 1))
        },
    );
    let plain = Reserved { checkpointing: false, mib: &[(48, 7033), (64, 9337), (96, 13945), (160, 20600)] };
    let checkpointed = Reserved { checkpointing: true, mib: &[(48, 5495), (64, 6262), (96, 9334), (160, 15478)] };
    check(&subject, &[plain, checkpointed]);
}
