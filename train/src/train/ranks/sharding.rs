//! Optimizer state that ranks share: each rank updates whole parameters, and passes their new values to the others.

use burn::module::Module;
use burn::optim::GradientsParams;

use super::Rank;
use super::buckets::Buckets;
use crate::train::step_failure::StepFailure;
use crate::visit::visit_floats;

/// For each trained parameter of a model, in its order, true if this rank keeps its optimizer state and updates it.
pub(super) fn owned<M: Module>(rank: &Rank, model: &M) -> Vec<bool> {
    let sizes = visit_floats!(model, sizes = Vec::new(), Vec<u64>, |param| {
        if param.is_require_grad() {
            sizes.push(param.base().shape().num_elements() as u64);
        }
    });
    let owners = gpu_tuned_core::exchange::owners(&sizes, rank.share().ranks());
    owners.into_iter().map(|owner| owner == rank.share().rank()).collect()
}

/// New values of all parameters that `changed` names; those of a parameter are its owner's.
///
/// `model` has the new values of the owned parameters. Both lists are in the order of the trained parameters.
pub(super) fn owners_values<M: Module>(
    rank: &Rank,
    model: &M,
    owned: &[bool],
    changed: &[bool],
) -> Result<GradientsParams, StepFailure> {
    let state = (owned.iter(), GradientsParams::new());
    let own = visit_floats!(model, (owned, values) = state, (std::slice::Iter<'v, bool>, GradientsParams), |param| {
        if param.is_require_grad() && owned.next() == Some(&true) {
            values.register::<D>(param.id, param.base().without_autodiff());
        }
    });
    let mut buckets = Buckets::new(own.1, model, 1.0);
    buckets.vectors = rank.sum(std::mem::take(&mut buckets.vectors))?;
    Ok(buckets.split(model, changed, 1.0))
}
