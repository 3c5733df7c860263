//! Outputs of training steps, which replays overwrite.

use std::any::Any;

#[cfg(feature = "train")]
use burn::tensor::Tensor;
#[cfg(feature = "train")]
use burn::tensor::kind::{Autodiff, Basic};
#[cfg(feature = "train")]
use burn::train::{ClassificationOutput, MultiLabelClassificationOutput, RegressionOutput, SequenceOutput};

#[cfg(feature = "train")]
use crate::stored::store;
#[cfg(feature = "train")]
use crate::train::weighted;

/// Implements a copy of each type of output into memory of its own.
macro_rules! copies {
    ($($(#[$gate:meta])? $type:ty => |$output:ident| $copy:expr;)+) => {
        /// Copies an output into memory of its own, without autodiff. `None` if its type is unknown.
        pub(in crate::train) fn copied<T: 'static>(output: &T) -> Option<T> {
            let any: &dyn Any = output;
            #[cfg(feature = "train")]
            if let Some(copy) = weighted::copied(any) {
                return copy.downcast().ok().map(|copy| *copy);
            }
            $(
                $(#[$gate])?
                if let Some($output) = any.downcast_ref::<$type>() {
                    let copy: Box<dyn Any> = Box::new($copy);
                    return copy.downcast().ok().map(|copy| *copy);
                }
            )+
            None
        }
    };
}

copies! {
    () => |output| *output;
    #[cfg(feature = "train")]
    ClassificationOutput => |output| ClassificationOutput {
        loss: copy(&output.loss)?, output: copy(&output.output)?, targets: copy(&output.targets)?,
    };
    #[cfg(feature = "train")]
    MultiLabelClassificationOutput => |output| MultiLabelClassificationOutput {
        loss: copy(&output.loss)?, output: copy(&output.output)?, targets: copy(&output.targets)?,
    };
    #[cfg(feature = "train")]
    RegressionOutput => |output| RegressionOutput {
        loss: copy(&output.loss)?, output: copy(&output.output)?, targets: copy(&output.targets)?,
    };
    #[cfg(feature = "train")]
    SequenceOutput => |output| SequenceOutput {
        loss: copy(&output.loss)?,
        logits: copy(&output.logits)?,
        predictions: match &output.predictions {
            Some(predictions) => Some(copy(predictions)?),
            None => None,
        },
        targets: copy(&output.targets)?,
    };
}

/// Loss of an output, if its type is Burn's.
#[cfg(feature = "train")]
pub(in crate::train) fn loss(output: &dyn Any) -> Option<Tensor<1>> {
    let burns = [
        output.downcast_ref().map(|output: &ClassificationOutput| &output.loss),
        output.downcast_ref().map(|output: &MultiLabelClassificationOutput| &output.loss),
        output.downcast_ref().map(|output: &RegressionOutput| &output.loss),
        output.downcast_ref().map(|output: &SequenceOutput| &output.loss),
    ];
    burns.into_iter().flatten().next().cloned().or_else(|| weighted::loss(output))
}

#[cfg(feature = "train")]
fn copy<const D: usize, K: Basic + Autodiff>(tensor: &Tensor<D, K>) -> Option<Tensor<D, K>> {
    store(tensor.clone().without_autodiff(), None)
}

#[cfg(all(test, feature = "train"))]
mod tests {
    use burn::tensor::{Device, Int, Tensor};
    use burn::train::{ClassificationOutput, SequenceOutput};

    use super::copied;

    #[test]
    fn copies_have_memory_of_their_own() {
        let device = Device::flex().autodiff();
        let loss = Tensor::<1>::full([1], 0.5, &device).require_grad();
        let targets = Tensor::<1, Int>::from_data([1, 0], &Device::flex());
        let output = ClassificationOutput { loss, output: Tensor::ones([2, 3], &device), targets };
        let copy = copied(&output).expect("an output of Burn's");
        assert!(copy.loss.can_mut() && copy.output.can_mut() && copy.targets.can_mut());
        assert!(!copy.loss.is_autodiff());
        assert_eq!(copy.output.into_data(), output.output.into_data());
        assert_eq!(copy.targets.into_data(), output.targets.into_data());
    }

    #[test]
    fn optional_parts_are_copied() {
        let device = Device::flex();
        let tokens = || Tensor::<2, Int>::ones([2, 3], &device);
        let sequence = |predictions| SequenceOutput {
            loss: Tensor::ones([1], &device),
            logits: Tensor::ones([2, 3, 4], &device),
            predictions,
            targets: tokens(),
        };
        let with = copied(&sequence(Some(tokens()))).expect("an output of Burn's");
        assert_eq!(with.predictions.expect("a copy").into_data(), tokens().into_data());
        assert!(copied(&sequence(None)).expect("an output of Burn's").predictions.is_none());
    }

    #[test]
    fn other_types_cannot_be_copied() {
        assert!(copied(&()).is_some());
        assert!(copied(&Tensor::<1>::ones([1], &Device::flex())).is_none());
    }
}
