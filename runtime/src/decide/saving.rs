use super::Decision;
use crate::saved::SavedRun;
use crate::tuned::Tuned;

impl SavedRun {
    /// The saved form of a decision for `config`.
    pub fn new<C: Tuned>(config: &C, decision: &Decision) -> Self {
        Self::from_plan(config, &decision.plan)
    }
}
