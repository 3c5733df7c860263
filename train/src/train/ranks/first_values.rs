//! Equal initial parameters on all ranks.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Bool, Int, Tensor};

use super::inputs::digest;
use super::packed::Packed;
use super::{PeersEnded, Rank};
use crate::shape::{parameters, shape};
use crate::stored::with_autodiff_of;
use crate::train::StepError;
use crate::train::step_failure::StepFailure;
use crate::visit::visit_floats;

/// Returns `model` with the first rank's values of all floats, and its identifiers of them: optimizer records have these.
pub(super) fn with_first_values<M: Module>(rank: &Rank, model: M) -> Result<M, PeersEnded> {
    if rank.share().ranks() == 1 {
        return Ok(model);
    }
    let state = Floats::default();
    let own = visit_floats!(&model, floats = state, Floats, |param| {
        let value = param.base().without_autodiff();
        let elements = value.shape().num_elements();
        floats.values.push(value.reshape([elements]));
        floats.ids.extend(param.id.val().to_le_bytes());
        floats.trained.push(param.is_require_grad());
    });
    let mut integers = Integers(Vec::new());
    model.visit(&mut integers);
    let others = digest(&(own.trained, integers.0));
    let text = format!("{} ({} trained values, {others:x})", shape(&model), parameters(&model));
    rank.agree("shape of the model", text)?;
    let ids = rank.waiting(|| rank.peers.broadcast(own.ids))?;
    let ids = ids.as_chunks().0.iter().map(|id| ParamId::from(u64::from_le_bytes(*id)));
    let mut values = Packed::new(own.values, 1.0);
    values.vectors = rank.waiting(|| rank.first(std::mem::take(&mut values.vectors))).map_err(ended)?;
    Ok(model.map(&mut Replace(ids.zip(values.parts()).collect::<Vec<_>>().into_iter())))
}

/// Bytes of a model's integers and flags, which are equal on all ranks: only floats are replaced.
struct Integers(Vec<u8>);

impl ModuleVisitor for Integers {
    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.0.extend(param.val().into_data().iter::<i64>().flat_map(i64::to_le_bytes));
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.0.extend(param.val().into_data().iter::<bool>().map(u8::from));
    }
}

/// Floats of a model, in its order.
#[derive(Default)]
struct Floats {
    values: Vec<Tensor<1>>,
    /// Identifiers, 8 bytes each.
    ids: Vec<u8>,
    /// True for each that is trained.
    trained: Vec<bool>,
}

fn ended(failure: StepFailure) -> PeersEnded {
    match failure {
        StepFailure::Error(StepError::Peers(ended)) => ended,
        other => std::sync::Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(other.into_message())),
    }
}

struct Replace(std::vec::IntoIter<(ParamId, Tensor<1>)>);

impl ModuleMapper for Replace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some((id, value)) = self.0.next() else { return param };
        let (_, old, mapper) = param.consume();
        let new = with_autodiff_of(value.reshape(old.shape()), &old.device());
        let new = if old.is_require_grad() { new.detach().require_grad() } else { new };
        Param::from_mapped_value(id, new, mapper)
    }
}
