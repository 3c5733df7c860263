//! Facts of all ranks, for one plan.

use gpu_tuned_core::Precision;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::exchange::Share;
use serde::{Deserialize, Serialize};

use crate::selection::Shortfall;

/// The ranks that this process trains with.
#[derive(Clone, Debug)]
pub(crate) struct RanksHere {
    /// Number of this process, from 0.
    pub rank: usize,
    /// Number of ranks.
    pub world_size: u64,
    /// Ranks on this host.
    pub local: u64,
    /// What the ranks have in common; `None` before they are asked.
    pub common: Option<CommonFacts>,
}

/// What a rank contributes to the plan.
#[cfg(feature = "distributed")]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RankFacts {
    pub host: String,
    pub facts: DeviceFacts,
    /// Match with the build: see [`CommonFacts`].
    pub built_for: Option<bool>,
    pub is_target: bool,
}

/// What all ranks have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CommonFacts {
    /// Facts that apply to all devices.
    pub facts: DeviceFacts,
    /// True if the constants of the build are for all devices; `None` if the build left the decision to the runtime.
    pub built_for: Option<bool>,
    /// True if the build names all devices.
    pub is_target: bool,
    /// In what ranks are unequal.
    pub weakest: Vec<Shortfall>,
    /// Unequal shares of a step, if the goal has them.
    pub shares: Option<UnequalShares>,
}

/// Shares of a step by the speeds of ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UnequalShares {
    /// Share of each rank.
    pub of_ranks: Vec<Share>,
    /// Precision of all ranks.
    pub precision: Precision,
}
