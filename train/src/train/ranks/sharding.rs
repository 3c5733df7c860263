//! Optimizer state that ranks share: each rank updates whole parameters, and passes their new values to the others.

use std::collections::HashSet;

use burn::module::Module;
use burn::optim::GradientsParams;

use super::Rank;
use super::buckets::Buckets;
use super::exchange::Computed;
use crate::out_of_memory::{Moment, watched};
use crate::train::step_failure::StepFailure;
use crate::train::update::patiently;
use crate::visit::visit_floats;

/// Part of the optimizer's state that one of several ranks keeps.
pub(in crate::train) struct Shard {
    pub rank: usize,
    /// Two or more.
    pub ranks: usize,
    /// Identifiers of the parameters that the rank updates.
    pub parameters: HashSet<u64>,
}

/// The shard of a rank; `None` if it keeps the state of all parameters.
pub(in crate::train) fn shard<M: Module>(rank: &Rank, model: &M) -> Option<Shard> {
    let (own, ranks) = (rank.share().rank(), rank.share().ranks());
    if !rank.shards_optimizer || ranks == 1 {
        return None;
    }
    let (ids, sizes): (Vec<_>, Vec<_>) = trained(model).into_iter().unzip();
    let owners = gpu_tuned_core::exchange::owners(&sizes, ranks);
    let parameters = ids.into_iter().zip(owners).filter(|(_, owner)| *owner == own).map(|(id, _)| id).collect();
    Some(Shard { rank: own, ranks, parameters })
}

/// Identifiers and elements of the trained parameters of a model, in its order.
pub(in crate::train) fn trained<M: Module>(model: &M) -> Vec<(u64, u64)> {
    visit_floats!(model, trained = Vec::new(), Vec<(u64, u64)>, |param| {
        if param.is_require_grad() {
            trained.push((param.id.val(), param.base().shape().num_elements() as u64));
        }
    })
}

/// New values of all parameters that `changed` names, in the order of the trained parameters; those of a parameter are its
/// owner's.
///
/// `model` has the new values of the rank's own parameters. `release` frees memory before a retry.
pub(super) fn owners_values<M: Module>(
    rank: &Rank,
    model: &M,
    shard: &Shard,
    changed: &[bool],
    release: impl Fn(),
) -> Result<GradientsParams, StepFailure> {
    // Retried, because it is before the exchange.
    let own_values = || {
        let state = (shard, GradientsParams::new());
        let own = visit_floats!(model, (shard, values) = state, (&'v Shard, GradientsParams), |param| {
            if param.is_require_grad() && shard.parameters.contains(&param.id.val()) {
                values.register::<D>(param.id, param.base().without_autodiff());
            }
        });
        let mut buckets = watched(Moment::Optimizer, || Buckets::of_values(own.1, model))?;
        let vectors = Computed::wait_for(buckets.take_vectors())?;
        Ok((buckets, vectors))
    };
    let (mut buckets, vectors) = patiently(release, own_values)?;
    buckets.packed.vectors = rank.waiting(|| rank.sum(vectors))?;
    Ok(buckets.split(model, changed, None))
}
