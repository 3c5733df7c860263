//! Losses of one optimizer step, with the gradients of the whole batch in f64.
//!
//! A test takes the step in micro-batches, in any precision and on any number of ranks, and compares.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use gpu_tuned_core::Precision;
use gpu_tuned_kernels::nn::loss::CrossEntropyLossConfig;
use gpu_tuned_kernels::nn::{Linear, LinearConfig};

use crate::values::{gradients, relative_l2};

/// Samples of the step.
pub const SAMPLES: usize = 8;
/// Sizes of micro-batches.
pub const MICRO_BATCHES: [usize; 4] = [1, 3, 4, SAMPLES];
/// Learning rate of plain descent, which moves parameters by the gradients times a power of two. The parameters' own rounding
/// is small beside it.
pub const RATE: f64 = 1024.0;

/// Positions of a sample.
const LENGTH: usize = 6;
const INPUTS: usize = 10;
/// Not 16: for bf16 rows of 16 values, `CubeCL` tries a kernel of 131,072 multiply-adds, which takes minutes to compile.
const WIDTH: usize = 12;
const CLASSES: usize = 8;
/// Class of positions without a target.
const PADDING: i64 = 0;
/// Targets of each sample, in micro-batches of very unequal sums.
const TARGETS: [usize; SAMPLES] = [1, 1, 2, 1, 6, 5, 6, 4];
/// As [`TARGETS`], with samples that have none.
const SOME_TARGETS: [usize; SAMPLES] = [1, 0, 2, 1, 6, 0, 6, 4];
/// Exact in 16 bits.
const CLASS_WEIGHTS: [f32; CLASSES] = [4.0, 0.25, 16.0, 1.0, 0.125, 8.0, 0.5, 2.0];
/// Rows of a chunk: fewer than a sample has.
const CHUNK: usize = 4;

/// Inputs `[samples, positions, features]` with a class for each position.
pub type Sequences = (Tensor<3>, Tensor<2, Int>);

/// Two layers that find the class of each position.
#[derive(Module, Debug)]
pub struct Tagger {
    first: Linear,
    head: Linear,
}

impl Tagger {
    /// Makes the layers in a float type. The parameters are exact in 16 bits.
    pub fn new(float: impl Into<DType>, device: &Device) -> Self {
        let float = float.into();
        let layer = |seed: u64, inputs: usize, outputs: usize| {
            let weight = TensorData::new(exact(seed, inputs * outputs), [inputs, outputs]);
            let bias = TensorData::new(exact(seed + 1, outputs), [outputs]);
            let mut layer = LinearConfig::new(inputs, outputs).init(device);
            layer.weight = Param::from_tensor(Tensor::from_data(weight, (device, float)));
            layer.bias = Some(Param::from_tensor(Tensor::from_data(bias, (device, float))));
            layer
        };
        Self { first: layer(1, INPUTS, WIDTH), head: layer(3, WIDTH, CLASSES) }
    }

    /// Rows of the hidden layer, in the type of the parameters.
    fn hidden(&self, input: Tensor<3>) -> Tensor<2> {
        let weight = self.first.weight.val();
        self.first.forward(input.flatten::<2>(0, 1).cast(weight.dtype())).tanh()
    }

    /// Logits of each position, in fp32 or f64.
    fn logits(&self, input: Tensor<3>) -> Tensor<2> {
        let logits = self.head.forward(self.hidden(input));
        if logits.dtype() == DType::F64 { logits } else { logits.cast(FloatDType::F32) }
    }
}

/// Multiples of 1/64 from -1/2 to 1/2.
fn exact(seed: u64, count: usize) -> Vec<f32> {
    (0..count as u64).map(|index| (mixed(seed << 32 | index) % 64) as f32 / 64.0 - 0.5).collect()
}

/// Bits that depend on all bits of a number, as `SplitMix64` computes them.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Mean loss of a micro-batch with its weight, for a test to convert.
#[derive(Clone, Debug)]
pub enum MeanLoss {
    /// Mean over samples.
    Samples(Tensor<1>),
    /// Mean over targets, and their number.
    Targets(Tensor<1>, Tensor<1, Int>),
    /// Mean weighted by class, and the sum of the targets' class weights.
    Classes(Tensor<1>, Tensor<1>),
    /// Mean over targets, and their number on the host.
    Number(Tensor<1>, usize),
    /// Inputs of a head whose cross-entropy is computed in chunks.
    Head(Box<Head>),
}

/// Inputs of a cross-entropy in chunks.
#[derive(Clone, Debug)]
pub struct Head {
    /// Rows of a chunk.
    pub chunk: usize,
    /// Class of rows without a target.
    pub padding: i64,
    /// Rows before the head.
    pub hidden: Tensor<2>,
    /// Weights of the head.
    pub weight: Tensor<2>,
    /// Bias of the head.
    pub bias: Option<Tensor<1>>,
    /// Class of each row.
    pub targets: Tensor<1, Int>,
}

/// Loss with the data of its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepLoss {
    /// Squared distance, mean over samples.
    Regression,
    /// Cross-entropy, as many targets in each sample.
    CrossEntropy,
    /// Cross-entropy with padding.
    Padding,
    /// Cross-entropy with padding, and samples without any target.
    NoTargets,
    /// Cross-entropy weighted by class.
    ClassWeights,
    /// Cross-entropy with padding, in chunks of rows.
    Chunked,
    /// Cross-entropy with padding, whose number of targets is on the host.
    HostNumber,
}

/// Gradients and loss of the whole batch.
#[derive(Clone, Debug)]
pub struct Whole {
    /// Gradients in the order of the parameters.
    pub gradients: Vec<f64>,
    /// Loss.
    pub loss: f64,
}

impl Whole {
    /// Returns the larger difference of gradients (L2) and loss from these, relative to these; infinite for NaN.
    pub fn difference(&self, gradients: &[f64], loss: f64) -> f64 {
        let differences = [relative_l2(gradients, &self.gradients), (loss / self.loss - 1.0).abs()];
        differences
            .map(|difference| if difference.is_nan() { f64::INFINITY } else { difference })
            .into_iter()
            .fold(0.0, f64::max)
    }
}

impl StepLoss {
    /// All losses.
    pub const ALL: [Self; 7] = [
        Self::Regression,
        Self::CrossEntropy,
        Self::Padding,
        Self::NoTargets,
        Self::ClassWeights,
        Self::HostNumber,
        Self::Chunked,
    ];

    /// Name in lines of output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Regression => "regression",
            Self::CrossEntropy => "cross_entropy",
            Self::Padding => "padding",
            Self::NoTargets => "no_targets",
            Self::ClassWeights => "class_weights",
            Self::Chunked => "chunked",
            Self::HostNumber => "host_number",
        }
    }

    /// Returns true if the mean is not over samples.
    pub const fn has_weight(self) -> bool {
        !matches!(self, Self::Regression | Self::CrossEntropy)
    }

    /// Classes of all positions.
    fn classes(self) -> Vec<i64> {
        let class = |index: usize| 1 + i64::from((mixed(0xc1a5 << 32 | index as u64) % (CLASSES as u64 - 1)) as u32);
        let counts = match self {
            Self::Padding | Self::Chunked | Self::HostNumber => TARGETS,
            Self::NoTargets => SOME_TARGETS,
            // Half of the samples have classes of small weight.
            Self::ClassWeights => {
                let light =
                    |index: usize| if index / LENGTH < SAMPLES / 2 { [1, 4, 6][index % 3] } else { class(index) };
                return (0..SAMPLES * LENGTH).map(light).collect();
            }
            Self::Regression | Self::CrossEntropy => [LENGTH; SAMPLES],
        };
        let of_sample = |(sample, &count): (usize, &usize)| {
            (0..LENGTH).map(move |at| if at < count { class(sample * LENGTH + at) } else { PADDING })
        };
        counts.iter().enumerate().flat_map(of_sample).collect()
    }

    /// All samples of the step, in host memory.
    pub fn batch(self) -> Sequences {
        let device = Device::flex();
        let classes = self.classes();
        (
            Tensor::from_data(TensorData::new(exact(9, SAMPLES * LENGTH * INPUTS), [SAMPLES, LENGTH, INPUTS]), &device)
                .mul_scalar(4),
            Tensor::from_data(TensorData::new(classes, [SAMPLES, LENGTH]), &device),
        )
    }

    /// Mean loss of a micro-batch, as a program computes it.
    pub fn mean(self, network: &Tagger, (input, classes): Sequences) -> MeanLoss {
        let classes = classes.flatten::<1>(0, 1);
        let counted = classes.clone().not_equal_elem(PADDING).int().sum();
        let device = classes.device();
        if self == Self::Chunked {
            let head = &network.head;
            return MeanLoss::Head(Box::new(Head {
                chunk: CHUNK,
                padding: PADDING,
                hidden: network.hidden(input),
                weight: head.weight.val(),
                bias: head.bias.as_ref().map(Param::val),
                targets: classes,
            }));
        }
        let logits = network.logits(input);
        let cross_entropy =
            |config: CrossEntropyLossConfig| config.init(&device).forward(logits.clone(), classes.clone());
        let padded = || cross_entropy(CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![PADDING as usize])));
        match self {
            Self::Regression => {
                let target = classes.unsqueeze_dim::<2>(1).cast(FloatDType::F32) / CLASSES as f64;
                MeanLoss::Samples((logits - target).square().mean())
            }
            Self::CrossEntropy => MeanLoss::Samples(cross_entropy(CrossEntropyLossConfig::new())),
            Self::ClassWeights => {
                let mean = cross_entropy(CrossEntropyLossConfig::new().with_weights(Some(CLASS_WEIGHTS.to_vec())));
                MeanLoss::Classes(mean, Tensor::<1>::from_floats(CLASS_WEIGHTS, &device).gather(0, classes).sum())
            }
            Self::HostNumber => MeanLoss::Number(padded(), counted.into_scalar::<i64>() as usize),
            Self::Padding | Self::NoTargets | Self::Chunked => MeanLoss::Targets(padded(), counted),
        }
    }

    /// Gradients and loss of the whole batch in f64 by the definition: a sum over all targets, divided by their number or
    /// weight.
    pub fn whole(self) -> Whole {
        let device = Device::flex().autodiff();
        let network = Tagger::new(DType::F64, &device);
        let (input, _) = self.batch();
        let input = Tensor::<3>::from_data(input.into_data().convert::<f64>(), (&device, DType::F64));
        let logits = network.logits(input);
        let classes = self.classes();
        let table = |value: &dyn Fn(i64, usize) -> f64| {
            let rows = classes.iter().flat_map(|&class| (0..CLASSES).map(move |column| (class, column)));
            let values: Vec<_> = rows.map(|(class, column)| value(class, column)).collect();
            Tensor::<2>::from_data(TensorData::new(values, [classes.len(), CLASSES]), (&device, DType::F64))
        };
        let loss = if self == Self::Regression {
            let apart = logits - table(&|class, _| class as f64 / CLASSES as f64);
            (apart.clone() * apart).sum() / (classes.len() * CLASSES) as f64
        } else {
            let weight = |class: i64| match self {
                Self::ClassWeights => f64::from(CLASS_WEIGHTS[class as usize]),
                Self::CrossEntropy | Self::Regression => 1.0,
                _ => f64::from(u8::from(class != PADDING)),
            };
            let sum: f64 = classes.iter().map(|&class| weight(class)).sum();
            let log_sum = logits.clone().exp().sum_dim(1).log();
            let picked = table(&|class, column| if class as usize == column { weight(class) } else { 0.0 });
            ((log_sum - logits) * picked).sum() / sum
        };
        let value = loss.clone().into_scalar::<f64>();
        let gradients = gradients(GradientsParams::from_grads(loss.backward(), &network), &network);
        Whole { gradients, loss: value }
    }
}

/// Largest relative L2 difference of gradients from those of the whole batch in f64, for products in full fp32.
pub const fn limit(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-6,
        Precision::MixedF16 => 1e-3,
        Precision::MixedBf16 | Precision::Bf16Params => 1e-2,
    }
}
