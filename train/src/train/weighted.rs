//! Outputs of Burn's training steps with the weight of their loss.

use std::any::{Any, TypeId};
use std::sync::{PoisonError, RwLock};

use burn::tensor::ExecutionError;
use burn::train::metric::{
    AccuracyInput, Adaptor, CerInput, ConfusionStatsInput, HammingScoreInput, ItemLazy, LossInput, PerplexityInput,
    TopKAccuracyInput, WerInput,
};

use super::graph::memory::copied_output;
use crate::loss::Weight;

/// Output of a training step in Burn's own loop, with the weight that its mean loss has in the optimizer step.
///
/// The counterpart of [`Loss`](crate::loss::Loss), which a trainer's closure returns. Metrics get the output.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::module::Module;
/// use burn::nn::Linear;
/// use burn::nn::loss::CrossEntropyLossConfig;
/// use burn::tensor::{Int, Tensor};
/// use burn::train::{ClassificationOutput, TrainOutput, TrainStep};
/// use gpu_tuned::train::Weighted;
///
/// const PADDING: usize = 0;
///
/// #[derive(Module, Debug)]
/// struct Tagger {
///     head: Linear,
/// }
///
/// impl TrainStep for Tagger {
///     type Input = (Tensor<2>, Tensor<1, Int>);
///     type Output = Weighted<ClassificationOutput>;
///
///     fn step(&self, (words, tags): Self::Input) -> TrainOutput<Self::Output> {
///         let logits = self.head.forward(words);
///         let loss = CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![PADDING])).init(&logits.device());
///         let loss = loss.forward(logits.clone(), tags.clone());
///         let targets = tags.clone().not_equal_elem(PADDING as i64).int().sum();
///         let output = ClassificationOutput::new(loss.clone(), logits, tags);
///         TrainOutput::new(self, loss.backward(), Weighted::new(output, targets))
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Weighted<O> {
    output: O,
    weight: Weight,
}

impl<O: Send + 'static> Weighted<O> {
    /// An output with the weight of its mean loss.
    pub fn new(output: O, weight: impl Into<Weight>) -> Self {
        register::<O>();
        Self { output, weight: weight.into() }
    }

    /// Output.
    pub const fn output(&self) -> &O {
        &self.output
    }

    /// Weight of the loss.
    pub const fn weight(&self) -> &Weight {
        &self.weight
    }
}

impl<O: ItemLazy + 'static> ItemLazy for Weighted<O> {
    fn sync(self) -> Result<Self, ExecutionError> {
        Ok(Self { output: self.output.sync()?, weight: self.weight })
    }
}

/// Passes the input of a metric on. Burn implements `Adaptor<()>` for all types, so the inputs are listed.
macro_rules! adaptors {
    ($($input:ty),+) => {$(
        impl<O: Adaptor<$input>> Adaptor<$input> for Weighted<O> {
            fn adapt(&self) -> $input {
                self.output.adapt()
            }
        }
    )+};
}

adaptors!(
    AccuracyInput,
    CerInput,
    ConfusionStatsInput,
    HammingScoreInput,
    LossInput,
    PerplexityInput,
    TopKAccuracyInput,
    WerInput
);

/// Output of a training step, and the weight of its loss.
type Parts<'o> = (&'o dyn Any, &'o Weight);

/// Functions for one type of weighted output. A strategy has outputs of any type, so each type is registered by its
/// constructor.
#[derive(Clone, Copy)]
struct Functions {
    of: TypeId,
    parts: fn(&dyn Any) -> Option<Parts<'_>>,
    copied: fn(&dyn Any) -> Option<Box<dyn Any>>,
}

static REGISTERED: RwLock<Vec<Functions>> = RwLock::new(Vec::new());

fn register<O: Send + 'static>() {
    let of = TypeId::of::<Weighted<O>>();
    let is_known = |known: &[Functions]| known.iter().any(|known| known.of == of);
    if is_known(&REGISTERED.read().unwrap_or_else(PoisonError::into_inner)) {
        return;
    }
    let mut known = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    if !is_known(&known) {
        known.push(Functions { of, parts: parts_of::<O>, copied: copied_of::<O> });
    }
}

fn parts_of<O: 'static>(output: &dyn Any) -> Option<Parts<'_>> {
    output.downcast_ref::<Weighted<O>>().map(|weighted| (&weighted.output as &dyn Any, &weighted.weight))
}

fn copied_of<O: 'static>(output: &dyn Any) -> Option<Box<dyn Any>> {
    let Weighted { output, weight } = output.downcast_ref::<Weighted<O>>()?;
    Some(Box::new(Weighted { output: copied_output(output)?, weight: weight.copied()? }))
}

fn functions(output: &dyn Any) -> Option<Functions> {
    let known = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    known.iter().find(|known| known.of == output.type_id()).copied()
}

/// Output of a training step and the weight of its loss; `None` for an output without a weight.
pub(super) fn parts(output: &dyn Any) -> Option<Parts<'_>> {
    (functions(output)?.parts)(output)
}

/// Copy of a weighted output; `None` for another output, and if the output in it cannot be copied.
pub(super) fn copied(output: &dyn Any) -> Option<Box<dyn Any>> {
    (functions(output)?.copied)(output)
}
