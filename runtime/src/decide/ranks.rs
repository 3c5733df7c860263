//! Facts of all ranks for one plan, and their shares of a step.

#[cfg(feature = "distributed")]
use gpu_tuned_core::Goal;
use gpu_tuned_core::Precision;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::exchange::Share;
#[cfg(feature = "distributed")]
use gpu_tuned_core::plan::plan_ranks;
#[cfg(feature = "distributed")]
use gpu_tuned_core::profile::ProfileTable;
use serde::{Deserialize, Serialize};

#[cfg(feature = "distributed")]
use super::device::{Device, is_built_for, is_named};
#[cfg(feature = "distributed")]
use super::{DecisionContext, goal, spec};
use crate::selection::Shortfall;
#[cfg(feature = "distributed")]
use crate::start::StartError;
#[cfg(feature = "distributed")]
use crate::tuned::Tuned;

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

/// Facts of this process's device, for the plan of all ranks.
#[cfg(feature = "distributed")]
pub(crate) fn rank_facts<C: Tuned>(context: DecisionContext<'_>, host: String) -> Result<RankFacts, StartError> {
    let resolved = C::BUILT.resolved()?;
    let none = ProfileTable::default();
    let profiles = resolved.map_or(&none, |resolved| &resolved.profile);
    let Device { gpu, facts, .. } = Device::choose(context, profiles);
    let matched = gpu.as_ref().map(|gpu| (&gpu.reading, &gpu.found));
    let built_for = is_built_for(&C::BUILT, resolved, matched);
    let is_target = is_named(&C::BUILT, gpu.as_ref(), built_for);
    Ok(RankFacts { host, facts, built_for, is_target })
}

/// Unequal shares of the ranks with these devices; `None` for equal ones.
#[cfg(feature = "distributed")]
pub(crate) fn unequal_shares<C: Tuned>(
    config: &C,
    context: DecisionContext<'_>,
    devices: &[DeviceFacts],
) -> Result<Option<UnequalShares>, StartError> {
    if !config.asked().unequal {
        return Ok(None);
    }
    let spec = spec(config)?;
    let mut workload = spec.workload();
    let (mut goal, own_pins) = goal(config, &spec, &workload, context)?;
    if let Some(resolved) = C::BUILT.resolved()? {
        workload = resolved.workload_on(C::BUILT.workload, &spec, devices);
    }
    if goal.global_batch.is_none() && !context.set.is_empty() {
        // Pins of one start cut the steps of the same run.
        let of_config = Goal { pins: own_pins, unequal: false, ..goal.clone() };
        let plans = plan_ranks(devices, &workload, &of_config)?;
        goal.global_batch = plans.first().map(|plan| plan.schedule.global_batch);
    }
    let plans = plan_ranks(devices, &workload, &goal)?;
    let precision = plans.first().map_or(Precision::F32, |plan| plan.settings.precision);
    let of_ranks: Option<_> = plans.iter().map(|plan| plan.schedule.share).collect();
    Ok(of_ranks.map(|of_ranks| UnequalShares { of_ranks, precision }))
}

#[cfg(all(test, feature = "distributed"))]
mod tests {
    use gpu_tuned_core::{Goal, Pins, Settings};

    use super::unequal_shares;
    use crate::decide::DecisionContext;
    use crate::{Built, StartError, Tuned, WorkloadSpec};

    /// A config with unequal shares.
    struct Config {
        layers: i32,
    }

    impl Tuned for Config {
        const BUILT: Built = Built::GENERIC;

        fn goal() -> Goal {
            Goal { unequal: true, ..Goal::default() }
        }

        fn workload(&self) -> WorkloadSpec {
            gpu_tuned_core::workload::Transformer::new(self.layers as u64, 64, 100, 16).into()
        }

        fn tuned(&self) -> Pins {
            Pins::default()
        }

        fn negative(&self) -> Option<(&'static str, i64)> {
            (self.layers < 0).then_some(("layers", self.layers.into()))
        }

        fn apply(&mut self, _: &Settings) {}
    }

    #[test]
    fn shares_of_a_config_with_unusable_fields_are_refused() {
        let (machine, set) = (crate::detect(), Pins::default());
        let context = DecisionContext::first(&machine, &set);
        let refused = |layers| unequal_shares(&Config { layers }, context, &[]).expect_err("the field is unusable");
        assert!(matches!(refused(-2), StartError::Negative { field: "layers", count: -2 }));
        assert!(matches!(refused(0), StartError::Dimensions { message } if message.starts_with("layers = 0")));
    }
}
