//! Processes that train together: their connection, and the facts of their devices.

mod common;
mod error;
mod join;
mod peers;

use std::sync::Arc;

use gpu_tuned_core::plan::Schedule;
use gpu_tuned_ranks::{Ended, Group};
use gpu_tuned_train::load::Share;
use gpu_tuned_train::train::Rank;

pub use error::RanksError;
pub use gpu_tuned_ranks::{EXIT_CODE, Launch, LaunchError, Launcher, Limits};

use crate::decide::{CommonFacts, Decision, RankFacts, RanksHere};
pub(crate) use join::device;
use peers::GroupPeers;

/// Connection of this process to the other ranks.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    group: Group,
    /// Ranks on this host.
    local: usize,
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
        RanksHere { world_size: self.group.world_size() as u64, local: self.local as u64, common: None }
    }

    /// The ranks with the facts that apply to all devices.
    pub(crate) fn with_common_facts(&self, own: &RankFacts) -> Result<RanksHere, RanksError> {
        let reply = self.group.meet("facts of the devices", json(own)?, |all| {
            let all: Result<Vec<RankFacts>, _> = all.iter().map(|facts| serde_json::from_slice(facts)).collect();
            let common = CommonFacts::new(&all.map_err(|error| error.to_string())?)?;
            serde_json::to_vec(&common).map_err(|error| error.to_string())
        })?;
        let common =
            serde_json::from_slice(&reply).map_err(|error| RanksError::Message { message: error.to_string() })?;
        Ok(RanksHere { common: Some(common), ..self.unplanned() })
    }

    /// Checks that all ranks have the same plan.
    pub(crate) fn agree(&self, decision: &Decision) -> Result<(), RanksError> {
        let Decision { plan, .. } = decision;
        let plan = serde_json::to_string(&(&plan.settings, &plan.schedule));
        let plan = plan.map_err(|error| RanksError::Message { message: error.to_string() })?;
        Ok(self.group.agree("plan", plan.as_bytes())?)
    }

    /// Ends all ranks with an error of this one.
    pub(crate) fn fail(&self, error: &dyn std::error::Error) {
        self.group.fail(error.to_string());
    }

    /// The rank for a trainer and its loader.
    pub(crate) fn rank(&self, schedule: &Schedule) -> Rank {
        Rank::new(Arc::new(GroupPeers::new(self.group.clone())), self.share(schedule))
    }

    /// This rank's share of a step.
    pub(crate) fn share(&self, schedule: &Schedule) -> Share {
        let samples = usize::try_from(schedule.samples_per_rank()).unwrap_or(usize::MAX);
        Share::equal(self.number(), self.group.world_size(), samples)
    }
}

fn json(facts: &RankFacts) -> Result<Vec<u8>, RanksError> {
    serde_json::to_vec(facts).map_err(|error| RanksError::Message { message: error.to_string() })
}
