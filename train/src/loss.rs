//! Losses: their [weight](Loss) in a step, and cross-entropy over a large vocabulary in chunks.
//!
//! Logits take `rows * vocabulary` numbers, and cross-entropy keeps several copies until the backward pass. With 16,384
//! tokens and a vocabulary of 50,257, one copy in fp32 is 3.3 GB. [`ChunkedCrossEntropy`] multiplies `chunk` rows by the
//! head's weights, adds their loss, and computes their gradients before the next rows.
//!
//! | | logits, then `CrossEntropyLoss` | in chunks |
//! |---|---|---|
//! | matrix products of a training step | 3 | 3 |
//! | matrix products without autodiff | 1 | 1 |
//! | memory that grows with the vocabulary, in numbers | 3 to 4 `rows * vocabulary` | 3 to 4 `chunk * vocabulary`, 3 `width * vocabulary` |
//! | kernel launches | about 10 | about 15 a chunk |
//!
//! Chunks save memory if a micro-batch has several times as many rows as the width. A chunk of 1024 to 4096 rows keeps matrix
//! products large. With fewer rows than the width, use Burn's `CrossEntropyLoss`.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Bool, DType, FloatDType, IndexingUpdateOp, Int, Tensor};

use crate::mixed::{Factor, in_f32};

/// Mean cross-entropy of the logits `hidden * weight + bias`, in chunks of rows.
///
/// See [`ChunkedCrossEntropy::forward`] for shapes, types and panics; no target is padding.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Device, Int, Tensor};
/// use gpu_tuned::loss::chunked_cross_entropy;
///
/// let device = Device::flex().autodiff();
/// let head = LinearConfig::new(8, 1000).init(&device);
/// let hidden = Tensor::<3>::ones([2, 16, 8], &device); // [samples, tokens, width]
/// let targets = Tensor::<2, Int>::zeros([2, 16], &device);
///
/// // was: CrossEntropyLoss::new(None, &device).forward(head.forward(hidden).flatten(0, 1), targets.flatten(0, 1))
/// let bias = head.bias.as_ref().map(|bias| bias.val());
/// let loss = chunked_cross_entropy(hidden.flatten(0, 1), head.weight.val(), bias, targets.flatten(0, 1), 8);
/// let gradients = loss.backward();
/// # assert!(head.weight.val().grad(&gradients).is_some());
/// ```
pub fn chunked_cross_entropy(
    hidden: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    targets: Tensor<1, Int>,
    chunk: usize,
) -> Tensor<1> {
    ChunkedCrossEntropy::new(chunk).forward(hidden, weight, bias, targets).into_parts().0
}

/// Cross-entropy of a linear head in chunks of rows, with targets that do not count.
#[derive(Clone, Debug)]
pub struct ChunkedCrossEntropy {
    chunk: usize,
    pad_tokens: Vec<i64>,
}

impl ChunkedCrossEntropy {
    /// Computes the logits of up to `chunk` rows at once; of one row if `chunk` is 0.
    pub fn new(chunk: usize) -> Self {
        Self { chunk: chunk.max(1), pad_tokens: Vec::new() }
    }

    /// Excludes rows with these targets from the mean and from its weight, as `pad_tokens` of Burn's `CrossEntropyLossConfig`
    /// does for the mean. They may be outside of the vocabulary, such as -100.
    #[must_use]
    pub fn with_pad_tokens(mut self, pad_tokens: Vec<i64>) -> Self {
        self.pad_tokens = pad_tokens;
        self
    }

    /// The mean cross-entropy (nats) over the rows that are not padding, with their number as its weight. The mean is NaN if
    /// all rows are padding; a trainer leaves out a mean of weight 0.
    ///
    /// - `hidden`: `[rows, width]`, the input of the head
    /// - `weight`: `[width, vocabulary]`, as in Burn's `Linear`; the transpose of an embedding's weights for a tied head
    /// - `bias`: `[vocabulary]`
    /// - `targets`: `[rows]`, below the vocabulary, or padding
    ///
    /// The three float tensors have one type. For 16-bit types, products of matrices are 16-bit as in a `Linear`. Softmax,
    /// sums over chunks and the loss are fp32, as with [`in_f32`] on the logits.
    ///
    /// The call computes the gradients if a tensor has autodiff. `backward` then only scales them, so factors after this
    /// call (a loss scale, the share of a micro-batch) act as with Burn's loss. Second derivatives are not supported.
    ///
    /// # Panics
    ///
    /// If there are no rows, or if shapes do not match.
    pub fn forward(
        &self,
        hidden: Tensor<2>,
        weight: Tensor<2>,
        bias: Option<Tensor<1>>,
        targets: Tensor<1, Int>,
    ) -> Loss {
        let rows = hidden.dims()[0];
        assert_eq!(rows, targets.dims()[0], "`hidden` and `targets` have different numbers of rows");
        assert!(rows > 0, "cross-entropy of a batch without rows has no mean: skip empty batches");
        let has_autodiff =
            hidden.is_autodiff() || weight.is_autodiff() || bias.as_ref().is_some_and(Tensor::is_autodiff);
        let sums = self.sums(
            &hidden.clone().inner(),
            &weight.clone().inner(),
            bias.clone().map(Tensor::inner).as_ref(),
            &targets.inner(),
            has_autodiff,
        );
        let mut loss = sums.loss;
        if let Some(gradients) = sums.gradients {
            loss = loss + carry(hidden, gradients.hidden) + carry(weight, gradients.weight);
            if let Some((bias, gradient)) = bias.zip(gradients.bias) {
                loss = loss + carry(bias, gradient);
            }
        }
        Loss::new(loss / sums.rows.clone(), sums.rows)
    }

    /// The sums over all rows, of tensors without autodiff.
    fn sums(
        &self,
        hidden: &Tensor<2>,
        weight: &Tensor<2>,
        bias: Option<&Tensor<1>>,
        targets: &Tensor<1, Int>,
        with_gradients: bool,
    ) -> Sums {
        let rows = targets.dims()[0];
        let transposed = weight.clone().transpose();
        let (mut loss, mut counted) = (Vec::new(), Vec::new());
        let (mut to_hidden, mut to_weight, mut to_bias) = (Vec::new(), None, None);
        for first in (0..rows).step_by(self.chunk) {
            let range = first..rows.min(first + self.chunk);
            let hidden = hidden.clone().slice_dim(0, range.clone());
            let targets = targets.clone().slice_dim(0, range);
            let mut logits = hidden.clone().matmul(weight.clone());
            if let Some(bias) = bias {
                logits = logits + bias.clone().unsqueeze();
            }
            let chunk = Chunk::new(in_f32(logits), targets, &self.pad_tokens);
            loss.push(chunk.loss());
            counted.push(chunk.rows());
            if !with_gradients {
                continue;
            }
            let to_logits = chunk.into_gradient();
            if bias.is_some() {
                to_bias = Some(add(to_bias, to_logits.clone().sum_dim(0).squeeze_dim(0)));
            }
            let to_logits = to_logits.cast(hidden.dtype());
            to_hidden.push(in_f32(to_logits.clone().matmul(transposed.clone())));
            to_weight = Some(add(to_weight, to_head(hidden, to_logits)));
        }
        let gradients = to_weight.map(|weight| Gradients { hidden: Tensor::cat(to_hidden, 0), weight, bias: to_bias });
        Sums { loss: Tensor::cat(loss, 0).sum(), rows: Tensor::cat(counted, 0).sum(), gradients }
    }
}

/// Sums over the rows of a batch.
struct Sums {
    loss: Tensor<1>,
    /// Rows that are not padding.
    rows: Tensor<1>,
    gradients: Option<Gradients>,
}

/// Gradients of the summed loss, in f32 for 16-bit inputs.
struct Gradients {
    hidden: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
}

/// The logarithms of probabilities of some rows.
struct Chunk {
    log_probabilities: Tensor<2>,
    /// `[rows, 1]`
    targets: Tensor<2, Int>,
    /// Rows that are padding, `[rows, 1]`.
    padding: Option<Tensor<2, Bool>>,
}

impl Chunk {
    fn new(logits: Tensor<2>, targets: Tensor<1, Int>, pad_tokens: &[i64]) -> Self {
        let mut targets = targets.unsqueeze_dim(1);
        let padding = pad_tokens.iter().map(|&token| targets.clone().equal_scalar(token)).reduce(Tensor::bool_or);
        if let Some(padding) = &padding {
            targets = targets.mask_fill(padding.clone(), 0);
        }
        Self { log_probabilities: log_softmax(logits, 1), targets, padding }
    }

    /// The sum of the cross-entropy.
    fn loss(&self) -> Tensor<1> {
        self.without_padding(self.log_probabilities.clone().gather(1, self.targets.clone())).sum().neg()
    }

    /// The number of rows that are not padding.
    fn rows(&self) -> Tensor<1> {
        let ones = Tensor::ones(self.targets.dims(), (&self.targets.device(), self.log_probabilities.dtype()));
        self.without_padding(ones).sum()
    }

    /// The gradient of the summed loss with respect to the logits: probabilities, less 1 for targets.
    fn into_gradient(self) -> Tensor<2> {
        let minus_one = -Tensor::ones(self.targets.dims(), (&self.targets.device(), self.log_probabilities.dtype()));
        let probabilities = self.log_probabilities.exp();
        let gradient = probabilities.scatter(1, self.targets, minus_one, IndexingUpdateOp::Add);
        match self.padding {
            Some(padding) => {
                let shape = gradient.shape();
                gradient.mask_fill(padding.expand(shape), 0)
            }
            None => gradient,
        }
    }

    fn without_padding(&self, column: Tensor<2>) -> Tensor<2> {
        match &self.padding {
            Some(padding) => column.mask_fill(padding.clone(), 0),
            None => column,
        }
    }
}

/// The gradient with respect to the weights, of the rows of a chunk.
///
/// Products in f16 exceed its range at 65504. The rows are divided by about the square root of their number first.
fn to_head(hidden: Tensor<2>, to_logits: Tensor<2>) -> Tensor<2> {
    if hidden.dtype() != DType::F16 {
        return in_f32(hidden.transpose().matmul(to_logits));
    }
    let factor = (hidden.dims()[0] as f64).sqrt().log2().round().exp2();
    in_f32((hidden / factor).transpose().matmul(to_logits)) * factor
}

fn add<const D: usize>(sum: Option<Tensor<D>>, part: Tensor<D>) -> Tensor<D> {
    match sum {
        Some(sum) => sum + part,
        None => part,
    }
}

/// Zero, with this gradient with respect to the tensor.
fn carry<const D: usize>(tensor: Tensor<D>, gradient: Tensor<D>) -> Tensor<1> {
    let product = (in_f32(tensor) * gradient).sum();
    product.clone() - product.detach()
}

/// Loss of a micro-batch: a mean, with its weight in the step.
///
/// A trainer minimises `sum(weight * mean) / sum(weight)` over all micro-batches and ranks of a step, so a step has the same
/// meaning however it is cut. The weight is the number of terms in the mean, or the sum of their weights. A tensor alone is a
/// mean over samples: its weight is the number of samples.
///
/// | loss | weight |
/// |---|---|
/// | mean over samples, or over as many tokens in each sample | none: return the tensor |
/// | mean over the targets that are not padding | number of these targets |
/// | mean weighted by class | sum of the targets' class weights |
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::nn::loss::CrossEntropyLossConfig;
/// use burn::tensor::{Device, Int, Tensor};
/// use gpu_tuned::loss::Loss;
///
/// let device = Device::flex();
/// let logits = Tensor::<2>::zeros([4, 3], &device);
/// let targets = Tensor::<1, Int>::from_ints([2, 0, 0, 1], &device); // 0 is padding
///
/// let mean = CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![0])).init(&device).forward(logits, targets.clone());
/// let loss = Loss::from((mean, targets.not_equal_elem(0).int().sum())); // a closure returns the tuple
/// assert_eq!(loss.weight().unwrap().read()?, 2.0);
/// # Ok::<(), burn::tensor::TensorReadError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Loss {
    mean: Tensor<1>,
    weight: Option<Weight>,
}

impl Loss {
    /// A mean of shape `[1]` with its weight.
    pub fn new(mean: Tensor<1>, weight: impl Into<Weight>) -> Self {
        Self { mean, weight: Some(weight.into()) }
    }

    /// Mean, of shape `[1]`.
    pub const fn mean(&self) -> &Tensor<1> {
        &self.mean
    }

    /// Weight of the mean; `None` for the number of samples.
    pub const fn weight(&self) -> Option<&Weight> {
        self.weight.as_ref()
    }

    /// Returns the mean, such as for an evaluation, and its weight.
    pub fn into_parts(self) -> (Tensor<1>, Option<Weight>) {
        (self.mean, self.weight)
    }
}

impl From<Tensor<1>> for Loss {
    fn from(mean: Tensor<1>) -> Self {
        Self { mean, weight: None }
    }
}

impl<W: Into<Weight>> From<(Tensor<1>, W)> for Loss {
    fn from((mean, weight): (Tensor<1>, W)) -> Self {
        Self::new(mean, weight)
    }
}

/// Weight of a mean: a number, or a tensor of shape `[1]` of integers, or of floats in 32 bits or more.
///
/// Zero excludes a micro-batch from the step, even if its loss is NaN. Weights are not negative.
///
/// CUDA graphs need a tensor: a replay does not call the loss.
#[derive(Clone, Debug)]
pub struct Weight(Value);

#[derive(Clone, Debug)]
enum Value {
    Number(f64),
    /// Without autodiff, in the type that the program has.
    Floats(Tensor<1>),
    /// Without autodiff.
    Ints(Tensor<1, Int>),
}

/// Weight in the form in which a step uses it.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a handful of them is alive at once")]
pub(crate) enum StepWeight {
    Number(f64),
    /// In fp32, of shape `[1]`, without autodiff.
    Device(Tensor<1>),
}

impl StepWeight {
    /// Factor of gradients of a mean with this weight, and of a number.
    pub(crate) fn factor(weight: Option<&Self>, number: f64) -> Factor {
        match weight {
            None => Factor::Number(number),
            Some(Self::Number(weight)) => Factor::Number(number * weight),
            Some(Self::Device(weight)) => Factor::Device(weight.clone(), number),
        }
    }

    /// Factor of the gradients of a step's only mean, whose weight cancels out: the number, or zero for a weight of zero.
    pub(crate) fn factor_alone(weight: Option<&Self>, number: f64) -> Factor {
        match weight {
            Some(Self::Number(0.0)) => Factor::Number(0.0),
            Some(Self::Device(weight)) => Factor::Device(weight.clone().sign(), number),
            None | Some(Self::Number(_)) => Factor::Number(number),
        }
    }
}

/// Reason why the weight of a loss cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightFault {
    /// Tensor with another number of values than one.
    #[error(
        "the weight of the loss has {0} values, and the mean over a micro-batch has one weight: sum the weights with `.sum()`"
    )]
    Values(usize),
    /// 16-bit tensor.
    #[error(
        "the weight of the loss is in {0:?}, which rounds large counts: count with integers, such as `mask.int().sum()`, or in \
         fp32"
    )]
    Type(DType),
    /// Negative weight, or one that is not finite.
    #[error("a weight of the loss is {0}: return the number of targets, or the sum of their class weights")]
    Number(f64),
    /// Losses with and without weights in one step.
    #[error(
        "some losses of the step have a weight, and others have none: return one in each micro-batch and on each rank"
    )]
    Missing,
}

impl Weight {
    /// Reads the weight. Waits for the device.
    ///
    /// # Errors
    ///
    /// If the device cannot compute the weight, or if the tensor has more than one value.
    pub fn read(&self) -> Result<f64, burn::tensor::TensorReadError> {
        match &self.0 {
            Value::Number(number) => Ok(*number),
            Value::Floats(tensor) => tensor.clone().try_into_scalar::<f64>(),
            Value::Ints(tensor) => tensor.clone().try_into_scalar::<i64>().map(|number| number as f64),
        }
    }

    pub(crate) fn in_step(self) -> Result<StepWeight, WeightFault> {
        let device = |values: usize, tensor: &dyn Fn() -> Tensor<1>| {
            if values == 1 { Ok(StepWeight::Device(tensor())) } else { Err(WeightFault::Values(values)) }
        };
        match self.0 {
            Value::Number(number) if number.is_finite() && number >= 0.0 => Ok(StepWeight::Number(number)),
            Value::Number(number) => Err(WeightFault::Number(number)),
            // Counts above 256 are rounded in bf16.
            Value::Floats(tensor) if matches!(tensor.dtype(), DType::BF16 | DType::F16) => {
                Err(WeightFault::Type(tensor.dtype()))
            }
            Value::Floats(tensor) => device(tensor.dims()[0], &|| tensor.clone().cast(FloatDType::F32)),
            Value::Ints(tensor) => device(tensor.dims()[0], &|| tensor.clone().cast(FloatDType::F32)),
        }
    }

    /// Factor of gradients of a mean with this weight, and of a number.
    ///
    /// # Errors
    ///
    /// [`WeightFault`] for a weight that cannot be used.
    pub fn factor(weight: Option<Self>, number: f64) -> Result<Factor, WeightFault> {
        Ok(StepWeight::factor(weight.map(Self::in_step).transpose()?.as_ref(), number))
    }

    /// Copies a tensor into memory of its own.
    #[cfg(feature = "train")]
    pub(crate) fn copied(&self) -> Option<Self> {
        Some(Self(match &self.0 {
            Value::Number(number) => Value::Number(*number),
            Value::Floats(tensor) => Value::Floats(crate::shape::store(tensor.clone(), None)?),
            Value::Ints(tensor) => Value::Ints(crate::shape::store(tensor.clone(), None)?),
        }))
    }
}

impl From<Tensor<1>> for Weight {
    fn from(tensor: Tensor<1>) -> Self {
        Self(Value::Floats(tensor.without_autodiff()))
    }
}

impl From<Tensor<1, Int>> for Weight {
    fn from(tensor: Tensor<1, Int>) -> Self {
        Self(Value::Ints(tensor.without_autodiff()))
    }
}

/// Implements the weight of a number.
macro_rules! number {
    ($($number:ty),+) => {$(
        impl From<$number> for Weight {
            #[allow(clippy::cast_lossless)]
            fn from(number: $number) -> Self {
                Self(Value::Number(number as f64))
            }
        }
    )+};
}

number!(f32, f64, u32, u64, usize);

#[cfg(test)]
mod tests;
