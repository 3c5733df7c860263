//! Equal initial parameters on all ranks.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Shape, Tensor, TensorData};

use super::RankHandle;
use super::group::RankMessage;
use crate::train::TrainerError;

/// Returns `model` with the first rank's values of all floats, copied once through host memory.
pub(super) fn with_first_ranks_values<M: Module>(rank: &RankHandle, model: M) -> Result<M, TrainerError> {
    if rank.ranks() == 1 {
        return Ok(model);
    }
    let mut floats = Floats { shapes: Vec::new(), values: (rank.rank == 0).then(Vec::new) };
    model.visit(&mut floats);
    let own = floats.shapes.clone();
    let message = RankMessage::Model { floats: floats.shapes, values: floats.values };
    let all = rank.exchange(message, |message| match message {
        RankMessage::Model { floats, values } => {
            Some((floats.clone(), (rank.rank > 0).then(|| values.clone()).flatten()))
        }
        _ => None,
    })?;
    let (floats, values) = all.into_iter().next().unwrap_or_default();
    if floats != own {
        return Err(TrainerError::Replica { rank: rank.rank });
    }
    let Some(values) = values else { return Ok(model) };
    Ok(model.map(&mut Values(values.into_iter())))
}

struct Floats {
    shapes: Vec<(Shape, DType)>,
    values: Option<Vec<TensorData>>,
}

impl ModuleVisitor for Floats {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.base().without_autodiff();
        self.shapes.push((value.shape(), value.dtype()));
        if let Some(values) = &mut self.values {
            values.push(value.into_data());
        }
    }
}

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
