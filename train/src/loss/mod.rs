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

#[cfg(test)]
mod tests;
mod weight;

use burn::tensor::activation::log_softmax;
use burn::tensor::{Bool, DType, IndexingUpdateOp, Int, Tensor};

pub(crate) use self::weight::StepWeight;
pub use self::weight::{Loss, Weight, WeightFault};
use crate::mixed::in_f32;

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
