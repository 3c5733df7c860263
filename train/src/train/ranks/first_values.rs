//! Equal initial parameters on all ranks.

use std::fmt::Write as _;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;

use super::{PeersEnded, Rank};
use crate::train::StepError;
use crate::train::step_failure::StepFailure;
use crate::visit::visit_floats;

/// Returns `model` with the first rank's values of all floats.
pub(super) fn with_first_values<M: Module>(rank: &Rank, model: M) -> Result<M, PeersEnded> {
    if rank.share().ranks() == 1 {
        return Ok(model);
    }
    let state = (String::new(), Vec::new());
    let (shapes, own) = visit_floats!(&model, (shapes, values) = state, (String, Vec<Tensor<1>>), |param| {
        let value = param.base().without_autodiff();
        write!(shapes, "{:?} {}; ", value.shape().as_slice(), value.dtype().name()).ok();
        let elements = value.shape().num_elements();
        values.push(value.reshape([elements]));
    });
    rank.agree("shapes of the model", shapes)?;
    let first = rank.waiting(|| rank.first(own)).map_err(ended)?;
    Ok(model.map(&mut Values(first.into_iter())))
}

fn ended(failure: StepFailure) -> PeersEnded {
    match failure {
        StepFailure::Error(StepError::Peers(ended)) => ended,
        other => std::sync::Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(other.into_message())),
    }
}

struct Values(std::vec::IntoIter<Tensor<1>>);

impl ModuleMapper for Values {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(value) = self.0.next() else { return param };
        param.map(|old| {
            let is_trained = old.is_require_grad();
            let new = crate::stored::with_autodiff_of(value.reshape(old.shape()), &old.device());
            if is_trained { new.detach().require_grad() } else { new }
        })
    }
}
