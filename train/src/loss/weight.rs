//! Losses with the weight that their mean has in an optimizer step.

use burn::tensor::{DType, FloatDType, Int, Tensor};

use crate::mixed::Factor;

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
            Value::Floats(tensor) => Value::Floats(crate::stored::store(tensor.clone(), None)?),
            Value::Ints(tensor) => Value::Ints(crate::stored::store(tensor.clone(), None)?),
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
