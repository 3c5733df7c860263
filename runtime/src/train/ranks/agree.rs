//! Ranks begin with the same values.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Shape, Tensor, TensorData};

use super::Seat;
use super::group::Post;
use crate::train::TrainerError;

/// `model` with the first rank's values of all floats. They go through the host's memory: it is done once.
pub(super) fn agreed<M: Module>(seat: &Seat, model: M) -> Result<M, TrainerError> {
    if seat.ranks() == 1 {
        return Ok(model);
    }
    let mut floats = Floats { shapes: Vec::new(), values: (seat.rank == 0).then(Vec::new) };
    model.visit(&mut floats);
    let own = floats.shapes.clone();
    let post = Post::Model { floats: floats.shapes, values: floats.values };
    let all = seat.meet(post, |post| match post {
        Post::Model { floats, values } => Some((floats.clone(), (seat.rank > 0).then(|| values.clone()).flatten())),
        _ => None,
    })?;
    let (floats, values) = all.into_iter().next().unwrap_or_default();
    if floats != own {
        return Err(TrainerError::Replica { rank: seat.rank });
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
