//! Losses of Burn that can be computed in f32 with a 16-bit default float type.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::nn::loss::{
    BinaryCrossEntropyLossConfig, CTCLossConfig, CosineEmbeddingLossConfig, CrossEntropyLossConfig,
    GaussianNLLLossConfig, HingeEmbeddingLossConfig, HuberLossConfig, KLDivLossConfig, LpLossConfig,
    MarginRankingLossConfig, MseLoss, MultiMarginLossConfig, PoissonNllLossConfig, RNNTLossConfig, Reduction,
    SmoothL1LossConfig, SoftMarginLoss, TripletMarginLossConfig,
};
use burn::tensor::activation::{log_softmax, softplus};
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};

use super::models::Numbers;
use super::process;

type Loss = fn(Tensor<2>, &Device) -> Tensor<1>;

/// Losses of logits `[4, 3]` by their names in the table of `gpu_tuned::mixed`, and whether they work.
macro_rules! losses {
    ($logits:ident, $device:ident: $($name:literal $works:literal => $loss:expr;)+) => {
        const LOSSES: &[(&str, Loss, bool)] = &[$(($name, |$logits, $device| $loss, $works)),+];
    };
}

losses! { logits, device:
    "CrossEntropy" true => CrossEntropyLossConfig::new().init(device).forward(logits, classes(device));
    "CrossEntropy, padding" true =>
        CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![2])).init(device).forward(logits, classes(device));
    "CrossEntropy, weights" false => {
        let weights = Some(vec![0.3, 1.1, 0.7]);
        CrossEntropyLossConfig::new().with_weights(weights).init(device).forward(logits, classes(device))
    };
    "CrossEntropy, smoothing" false =>
        CrossEntropyLossConfig::new().with_smoothing(Some(0.1)).init(device).forward(logits, classes(device));
    "BinaryCrossEntropy" false =>
        BinaryCrossEntropyLossConfig::new().with_logits(true).init(device).forward(logits, one_hot(device));
    "CTC" true => {
        let log_probs = log_softmax(logits, 1).reshape([4, 1, 3]);
        CTCLossConfig::new().init().forward(log_probs, labels(device), int([4], device), int([2], device)).mean()
    };
    "CTC, mean" false => {
        let log_probs = log_softmax(logits, 1).reshape([4, 1, 3]);
        let (times, lengths, loss) = (int([4], device), int([2], device), CTCLossConfig::new().init());
        loss.forward_with_reduction(log_probs, labels(device), times, lengths, Reduction::Mean)
    };
    "RNNT" false => {
        let (logits, labels) = (logits.reshape([1, 2, 2, 3]), Tensor::from_ints([[1]], device));
        RNNTLossConfig::new().init().forward(logits, labels, int([2], device), int([1], device)).mean()
    };
    "Mse" true => MseLoss::new().forward(logits, target(device), Reduction::Mean);
    "Lp" true => LpLossConfig::new(3.0).init().forward(logits, target(device), Reduction::Mean);
    "Huber" true => HuberLossConfig::new(0.5).init().forward(logits, target(device), Reduction::Mean);
    "SmoothL1" true => SmoothL1LossConfig::new().init().forward(logits, target(device)).mean();
    "PoissonNll" true => PoissonNllLossConfig::new().init().forward(logits, positive(device), Reduction::Mean);
    "PoissonNll, full" true =>
        PoissonNllLossConfig::new().with_full(true).init().forward(logits, positive(device), Reduction::Mean);
    "GaussianNLL" true =>
        GaussianNLLLossConfig::new().init().forward(logits, target(device), positive(device), Reduction::Mean);
    "KLDiv" true =>
        KLDivLossConfig::new().init().forward(log_softmax(logits, 1), positive(device), Reduction::BatchMean);
    "CosineEmbedding" true => {
        let signs = Tensor::from_ints([1, -1, 1, -1], device);
        CosineEmbeddingLossConfig::new().init().forward(logits, target(device), signs)
    };
    "HingeEmbedding" true =>
        HingeEmbeddingLossConfig::new().init().forward(logits, signs(device), Reduction::Mean);
    "MarginRanking" true =>
        MarginRankingLossConfig::new().init().forward(logits, target(device), signs(device), Reduction::Mean);
    "MultiMargin" true =>
        MultiMarginLossConfig::new().init().forward(logits, classes(device), Reduction::Mean);
    "SoftMargin" true => SoftMarginLoss::new().forward(logits, signs(device), Reduction::Mean);
    "TripletMargin" true =>
        TripletMarginLossConfig::new().init().forward(logits, target(device), positive(device), Reduction::Mean);
}

fn real(seed: u64, device: &Device) -> Tensor<2> {
    let mut numbers = Numbers::new(seed);
    let values: Vec<f32> = (0..12).map(|_| numbers.real()).collect();
    Tensor::from_data(TensorData::new(values, [4, 3]), (device, DType::F32))
}

fn target(device: &Device) -> Tensor<2> {
    real(2, device)
}

fn positive(device: &Device) -> Tensor<2> {
    real(3, device).abs().add_scalar(0.5)
}

fn signs(device: &Device) -> Tensor<2> {
    real(4, device).sign()
}

fn classes(device: &Device) -> Tensor<1, Int> {
    Tensor::from_ints([0, 2, 1, 1], device)
}

fn one_hot(device: &Device) -> Tensor<2, Int> {
    Tensor::from_ints([[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0]], device)
}

fn labels(device: &Device) -> Tensor<2, Int> {
    Tensor::from_ints([[1, 2]], device)
}

fn int(values: [i64; 1], device: &Device) -> Tensor<1, Int> {
    Tensor::from_ints(values, device)
}

/// The bits of each loss and of the sum of its gradient, or what went wrong.
pub(crate) fn task() -> String {
    let device = Device::flex().autodiff();
    let outcomes = LOSSES.iter().map(|(_, loss, _)| {
        let computed = catch_unwind(AssertUnwindSafe(|| {
            let logits = real(1, &device).require_grad();
            let loss = loss(logits.clone(), &device);
            let dtype = loss.dtype();
            let value = loss.clone().into_scalar::<f32>();
            let gradient = logits.grad(&loss.backward()).expect("it depends on the logits");
            (dtype, value, gradient.dtype(), gradient.square().sum().into_scalar::<f32>())
        }));
        match computed {
            Ok((DType::F32, value, DType::F32, slope)) => format!("{:08x} {:08x}", value.to_bits(), slope.to_bits()),
            Ok((loss, _, gradient, _)) => format!("{loss:?} {gradient:?}"),
            Err(_) => "mixes".to_owned(),
        }
    });
    outcomes.collect::<Vec<_>>().join(",")
}

#[test]
fn those_that_the_table_lists_give_in_f32_what_they_give_in_a_program_of_f32() {
    let right = process::run("f32", "losses");
    for float in ["bf16", "f16"] {
        let found = process::run(float, "losses");
        for (((name, _, works), found), right) in LOSSES.iter().zip(found.split(',')).zip(right.split(',')) {
            assert_eq!(found == right, *works, "{float}: {name} gave {found}, and in f32 {right}");
        }
    }
}

/// Replacements in the table for losses that mix types.
const INSTEAD: [(&str, Loss); 2] = [
    ("BinaryCrossEntropy", |logits, device| {
        let targets = one_hot(device).cast(FloatDType::F32);
        (softplus(logits.clone(), 1.0) - logits * targets).mean()
    }),
    ("CrossEntropy, smoothing", |logits, device| {
        let plain = CrossEntropyLossConfig::new().init(device).forward(logits.clone(), classes(device));
        plain * 0.9 - log_softmax(logits, 1).mean() * 0.1
    }),
];

/// Replacements for some losses; in f32, the losses themselves.
pub(crate) fn instead() -> String {
    let device = Device::flex();
    let value = |loss: Loss| loss(real(1, &device), &device).into_scalar::<f64>().to_string();
    let own = |name| LOSSES.iter().find(|(of, ..)| *of == name).map(|(_, loss, _)| *loss).expect("a loss");
    let is_f32 = device.settings().float_dtype == FloatDType::F32;
    INSTEAD.map(|(name, loss)| value(if is_f32 { own(name) } else { loss })).join(" ")
}

#[test]
fn what_the_table_has_instead_is_the_same() {
    let numbers = |float| -> Vec<f64> {
        process::run(float, "instead").split(' ').map(|value| value.parse().expect("a number")).collect()
    };
    let right = numbers("f32");
    for float in ["bf16", "f16"] {
        for (found, right) in numbers(float).iter().zip(&right) {
            assert!((found - right).abs() < 1e-6, "{float}: {found} is not {right}");
        }
    }
}
