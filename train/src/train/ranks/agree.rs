//! Equal initial parameters on all ranks.

use std::sync::Arc;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Shape, Tensor, TensorData};

use super::RankHandle;
use crate::train::TrainerError;
use crate::visit::visit_floats;

/// Returns `model` with the first rank's values of all floats, copied once through host memory.
pub(super) fn with_first_ranks_values<M: Module>(rank: &RankHandle, model: M) -> Result<M, TrainerError> {
    if rank.ranks() == 1 {
        return Ok(model);
    }
    // The values of the first rank.
    let values = (rank.rank == 0).then(Vec::new);
    let own = visit_floats!(&model, (shapes, values) = (Vec::new(), values), Floats, |param| {
        let value = param.base().without_autodiff();
        shapes.push((value.shape(), value.dtype()));
        if let Some(values) = values {
            values.push(value.into_data());
        }
    });
    let own = Arc::new(own);
    let all = rank.exchange(Arc::clone(&own))?;
    let (shapes, values) = &*all[0];
    if *shapes != own.0 {
        return Err(TrainerError::Replica { rank: rank.rank });
    }
    match values {
        Some(values) if rank.rank > 0 => Ok(model.map(&mut Values(values.clone().into_iter()))),
        _ => Ok(model),
    }
}

/// Shapes and types of a model's floats in its order, and values.
type Floats = (Vec<(Shape, DType)>, Option<Vec<TensorData>>);

struct Values(std::vec::IntoIter<TensorData>);

impl ModuleMapper for Values {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(value) = self.0.next() else { return param };
        param.map(|old| {
            let new = Tensor::from_data(value, (&old.device(), old.dtype()));
            if old.is_require_grad() { new.detach().require_grad() } else { new }
        })
    }
}
