//! Optimizer state that ranks share: each rank updates whole parameters, and passes their new values to the others.

use std::collections::HashSet;

use burn::module::Module;
use burn::optim::GradientsParams;
use gpu_tuned_observe::log::warn_user;

use super::Rank;
use super::exchange::{Buckets, Queued};
use crate::out_of_memory::{Moment, watched};
use crate::shape::visit_floats;
use crate::train::TrainerError;
use crate::train::outcome::StepFailure;
use crate::train::update::patiently;

/// Most ranks whose shards are recognised.
const MOST_RANKS: usize = 64;

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

/// Checks that an optimizer's state lacks no parameter that this process updates.
///
/// Parameters that never had a gradient have no state, and neither have new layers: that is a warning. State of exactly the
/// parameters that one of several ranks keeps is an error, because the other ranks' state was not saved. Numbers of ranks
/// count from two up to those with two parameters a rank on average: with more ranks, a shard is any single parameter.
///
/// # Errors
///
/// [`TrainerError::PartialState`].
pub(in crate::train) fn check_state<M: Module>(
    known: &HashSet<u64>,
    shard: Option<&Shard>,
    model: &M,
) -> Result<(), TrainerError> {
    let trained = trained(model);
    let is_updated = |id: &u64| shard.is_none_or(|shard| shard.parameters.contains(id));
    let missing = trained.iter().filter(|(id, _)| is_updated(id) && !known.contains(id)).count();
    if missing == 0 {
        return Ok(());
    }
    let (parameters, all) = (trained.iter().filter(|(id, _)| known.contains(id)).count(), trained.len());
    if let Some(ranks) = ranks_of_shard(known, &trained) {
        return Err(TrainerError::PartialState { parameters, all, ranks });
    }
    warn_user(&format!(
        "the loaded optimizer has no state for {missing} of {all} trained parameters: their state begins anew, as for new layers"
    ));
    Ok(())
}

/// Number of ranks of which one keeps the state of exactly these trained parameters; the smallest.
pub(in crate::train) fn ranks_of_shard(known: &HashSet<u64>, trained: &[(u64, u64)]) -> Option<usize> {
    let sizes: Vec<_> = trained.iter().map(|(_, size)| *size).collect();
    let most = MOST_RANKS.min((trained.len() / 2).max(2));
    (2..=most).find(|ranks| {
        let owners = gpu_tuned_core::exchange::owners(&sizes, *ranks);
        let is_known = |parameter: usize| known.contains(&trained[parameter].0);
        let owner = (0..owners.len()).find(|parameter| is_known(*parameter)).map(|parameter| owners[parameter]);
        owner
            .is_some_and(|owner| (0..owners.len()).all(|parameter| is_known(parameter) == (owners[parameter] == owner)))
    })
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
        let mut buckets = watched(Moment::Optimizer, || Buckets::new(own.1, model, 1.0, false))?;
        let vectors = Queued::new(buckets.take_vectors())?;
        Ok((buckets, vectors))
    };
    let (mut buckets, vectors) = patiently(&release, own_values)?;
    let sums = || {
        let sums = rank.sum(vectors)?;
        patiently(&release, || rank.complete(&sums))?;
        Ok::<_, StepFailure>(sums)
    };
    buckets.packed.vectors = rank.waiting(sums)?;
    Ok(buckets.split(model, changed, None))
}
