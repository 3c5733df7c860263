//! Memory that a recording reads and writes: parameters, running statistics, and outputs.

use std::any::Any;

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
#[cfg(feature = "train")]
use burn::tensor::kind::{Autodiff, Basic};
#[cfg(feature = "train")]
use burn::train::{ClassificationOutput, MultiLabelClassificationOutput, RegressionOutput, SequenceOutput};

use crate::shape::{store, visit_floats, with_autodiff_of};
use crate::train::buffers::Buffers;
#[cfg(feature = "train")]
use crate::train::weighted;

/// A copy of `kept` with the values of the trained parameters of `model`: in the memory of `kept` if `in_place`, else in memory
/// of their own. `None` if that is impossible, as with a parameter that is shared or has another shape.
pub(super) fn stored_parameters<M: Module>(kept: M, model: &M, in_place: bool) -> Option<M> {
    let values = visit_floats!(model, values = GradientsParams::new(), GradientsParams, |param| {
        if param.is_require_grad() {
            values.register(param.id, param.base().without_autodiff());
        }
    });
    let mut store = Store { values, in_place, failed: false };
    let stored = kept.map(&mut store);
    (!store.failed).then_some(stored)
}

struct Store {
    values: GradientsParams,
    in_place: bool,
    failed: bool,
}

impl ModuleMapper for Store {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let value = if param.is_require_grad() { self.values.remove::<D>(param.id) } else { None };
        let Some(value) = value else { return param };
        param.map(|tensor| {
            let device = tensor.device();
            let kept = self.in_place.then(|| tensor.without_autodiff());
            let stored = store(value.clone(), kept);
            self.failed |= stored.is_none();
            stored.map_or(value, |stored| with_autodiff_of(stored, &device).require_grad())
        })
    }
}

/// New values, kept memory, and true after a failure.
type Loading = (GradientsParams, GradientsParams, bool);

/// Running statistics in memory that a recording reads and writes.
///
/// A forward pass computes new values in new memory. Recorded work therefore ends with a copy into the kept memory, which
/// the next replay reads.
impl Buffers {
    /// Copies of the values in other memory.
    pub(super) fn copied<M: Module>(&self, model: &M) -> Self {
        let state = (&self.0, GradientsParams::new());
        let (_, copies) =
            visit_floats!(model, (values, copies) = state, (&'v GradientsParams, GradientsParams), |param| {
                if let Some(value) = values.get::<D>(param.id) {
                    copies.register(param.id, value.mul_scalar(1.0));
                }
            });
        Self(copies)
    }

    /// Copies the values of `model` into this memory. `None` if the memory is shared, or if a value has another shape.
    pub(super) fn loaded<M: Module>(self, model: &M) -> Option<Self> {
        let state = (self.current(model).0, self.0, false);
        let (_, kept, failed) = visit_floats!(model, (now, kept, failed) = state, Loading, |param| {
            if let (Some(value), Some(memory)) = (now.remove::<D>(param.id), kept.remove::<D>(param.id)) {
                match store(value, Some(memory)) {
                    Some(stored) => kept.register(param.id, stored),
                    None => *failed = true,
                }
            }
        });
        (!failed).then_some(Self(kept))
    }
}

/// Copies an output into memory of its own, without autodiff. `None` if its type is unknown.
pub(in crate::train) fn copied_output<T: 'static>(output: &T) -> Option<T> {
    copied(output)?.downcast().ok().map(|copy| *copy)
}

#[cfg(not(feature = "train"))]
fn copied(output: &dyn Any) -> Option<Box<dyn Any>> {
    output.is::<()>().then(|| Box::new(()) as Box<dyn Any>)
}

#[cfg(feature = "train")]
fn copied(output: &dyn Any) -> Option<Box<dyn Any>> {
    /// Returns a copy if the output has one of these types.
    macro_rules! copy_parts {
        ($($type:ident),+) => {$(
            if let Some(known) = output.downcast_ref::<$type>() {
                let (loss, output, targets) = (copy(&known.loss)?, copy(&known.output)?, copy(&known.targets)?);
                return Some(Box::new($type { loss, output, targets }));
            }
        )+};
    }
    if output.is::<()>() {
        return Some(Box::new(()));
    }
    if let Some(copy) = weighted::copied(output) {
        return Some(copy);
    }
    copy_parts!(ClassificationOutput, MultiLabelClassificationOutput, RegressionOutput);
    let SequenceOutput { loss, logits, predictions, targets } = output.downcast_ref()?;
    let predictions = match predictions {
        Some(predictions) => Some(copy(predictions)?),
        None => None,
    };
    Some(Box::new(SequenceOutput { loss: copy(loss)?, logits: copy(logits)?, predictions, targets: copy(targets)? }))
}

/// Loss of an output, if its type is Burn's.
#[cfg(feature = "train")]
pub(in crate::train) fn output_loss(output: &dyn Any) -> Option<Tensor<1>> {
    let burns = [
        output.downcast_ref().map(|output: &ClassificationOutput| &output.loss),
        output.downcast_ref().map(|output: &MultiLabelClassificationOutput| &output.loss),
        output.downcast_ref().map(|output: &RegressionOutput| &output.loss),
        output.downcast_ref().map(|output: &SequenceOutput| &output.loss),
    ];
    burns.into_iter().flatten().next().cloned().or_else(|| output_loss(weighted::parts(output)?.0))
}

#[cfg(feature = "train")]
fn copy<const D: usize, K: Basic + Autodiff>(tensor: &Tensor<D, K>) -> Option<Tensor<D, K>> {
    store(tensor.clone().without_autodiff(), None)
}

#[cfg(test)]
mod tests;
