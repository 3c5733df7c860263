//! Processes that train together: their connection, and the facts of their devices.

mod common;
mod error;
mod join;
mod peers;
mod terms;

use std::sync::Arc;

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::exchange;
use gpu_tuned_core::plan::Schedule;
use gpu_tuned_ranks::{Ended, Group};
use gpu_tuned_train::load::Share;
use gpu_tuned_train::train::{Inputs, Rank};

pub use error::RanksError;
pub use gpu_tuned_ranks::{EXIT_CODE, Launch, LaunchError, Launcher, Limits};

use crate::decide::{CommonFacts, Decision, RankFacts, RanksHere, UnequalShares};
pub(crate) use join::device;
use peers::GroupPeers;

/// Connection of this process to the other ranks.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    group: Group,
    /// Ranks on this host.
    local: usize,
    /// Samples of each rank in a step, if they are unequal.
    shares: Option<Arc<[exchange::Share]>>,
    /// Inputs of this rank, for all of its trainers and loaders.
    inputs: Inputs,
}

impl Connection {
    /// Number of this process.
    pub(crate) fn number(&self) -> usize {
        self.group.rank()
    }

    /// Name of this process's host.
    pub(crate) fn host(&self) -> String {
        self.group.host().to_owned()
    }

    /// Waits for all ranks.
    pub(crate) fn barrier(&self) -> Result<(), Ended> {
        self.group.barrier()
    }

    /// The ranks, before they know each other's devices.
    pub(crate) fn unplanned(&self) -> RanksHere {
        let (rank, world_size) = (self.number(), self.group.world_size() as u64);
        RanksHere { rank, world_size, local: self.local as u64, common: None }
    }

    /// The ranks with the facts that apply to all devices. The first rank calls `shares` with all devices.
    pub(crate) fn with_common_facts(
        &self,
        own: &RankFacts,
        shares: impl FnOnce(&[DeviceFacts]) -> Result<Option<UnequalShares>, String>,
    ) -> Result<RanksHere, RanksError> {
        let own = serde_json::to_vec(own).map_err(RanksError::from_json)?;
        let reply = self.group.meet("facts of the devices", own, |all| {
            let all: Result<Vec<RankFacts>, _> = all.iter().map(|facts| serde_json::from_slice(facts)).collect();
            let all = all.map_err(|error| error.to_string())?;
            let common = CommonFacts::new(&all)?;
            let devices: Vec<_> = all.into_iter().map(|rank| rank.facts).collect();
            let common = CommonFacts { shares: shares(&devices)?, ..common };
            serde_json::to_vec(&common).map_err(|error| error.to_string())
        })?;
        let common = serde_json::from_slice(&reply).map_err(RanksError::from_json)?;
        Ok(RanksHere { common: Some(common), ..self.unplanned() })
    }

    /// The connection with unequal shares of a step, if there are any.
    pub(crate) fn with_shares(self, ranks: &RanksHere) -> Self {
        let shares = ranks.common.as_ref().and_then(|common| common.shares.as_ref());
        Self { shares: shares.map(|shares| shares.of_ranks.clone().into()), ..self }
    }

    /// Checks that all ranks have the same plan, apart from unequal shares.
    pub(crate) fn agree(&self, decision: &Decision) -> Result<(), RanksError> {
        let plan = &decision.plan;
        let plan = match &self.shares {
            None => serde_json::to_string(&(&plan.settings, &plan.schedule)),
            Some(shares) => serde_json::to_string(&(plan.settings.precision, plan.schedule.global_batch, &**shares)),
        };
        Ok(self.group.agree("plan", &plan.map_err(RanksError::from_json)?)?)
    }

    /// Ends all ranks with an error of this one.
    pub(crate) fn fail(&self, error: &dyn std::error::Error) {
        self.group.fail(error.to_string());
    }

    /// The rank for a trainer and its loader.
    pub(crate) fn rank(&self, schedule: &Schedule, shards_optimizer: bool) -> Rank {
        let peers = Arc::new(GroupPeers::new(self.group.clone()));
        Rank::new(peers, self.share(schedule)).with_inputs(self.inputs.clone()).shard_optimizer(shards_optimizer)
    }

    /// This rank's share of a step.
    pub(crate) fn share(&self, schedule: &Schedule) -> Share {
        let (rank, ranks) = (self.number(), self.group.world_size());
        let unequal = self.shares.as_ref().and_then(|shares| Share::of(rank, shares));
        let samples = || usize::try_from(schedule.samples_per_rank()).unwrap_or(usize::MAX);
        unequal.unwrap_or_else(|| Share::equal(rank, ranks, samples()))
    }
}
