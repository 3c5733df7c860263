//! Steps that run both ways: by replays, and by plain micro-steps.

use burn::module::Module;

use super::agreement::{Agreement, Comparison, Outcomes};
use super::micro_step::MicroStep;
use super::rounding::with_rounding_errors;
use super::statistics::Statistics;
use super::{CHECKS, GraphStatus, Graphs, Newest};
use crate::micro_batch::MicroBatch;
use crate::mixed::LossScale;
use crate::train::accumulation::MicroBatchGradients;
use crate::train::buffers::Buffers;
use crate::train::step_failure::StepFailure;

/// Result of a micro-step, and the running statistics after it.
pub(super) struct Outcome<T> {
    pub(super) result: MicroBatchGradients<T>,
    /// Empty for a model without them.
    pub(super) statistics: Buffers,
}

impl<M: Module, T: 'static> Graphs<M, T> {
    /// Compares two replays with two plain micro-steps from the same state. Returns the result of the first plain one, and
    /// leaves its running statistics in the model. Refuses replays that differ by more than rounding.
    pub(super) fn compare<B: MicroBatch>(
        &mut self,
        model: &M,
        micro: &B,
        factors: (f64, &LossScale),
        plain: &dyn Fn(B) -> Result<MicroBatchGradients<T>, StepFailure>,
    ) -> Result<MicroBatchGradients<T>, StepFailure> {
        let statistics = self.recorded.as_ref().and_then(MicroStep::statistics);
        let before = statistics.map(|kept| kept.current(model)).unwrap_or_default();
        let device = self.device.clone();
        let plain = || {
            before.restore(model);
            // Fusion combines a micro-step with pending operations, and the next one with others, in kernels that round
            // otherwise. A failure shows when values are read.
            device.sync().ok();
            let result = plain(micro.clone())?;
            let statistics = before.current(model);
            Ok::<_, StepFailure>(Outcome { result, statistics })
        };
        let [first, second] = [plain()?, plain()?];
        before.restore(model);
        let mut replayed = || -> Result<_, String> {
            let mut replay = |model| self.replay_anew(model, micro.clone(), factors);
            Ok(([replay(model)?, replay(model)?], replay(&with_rounding_errors(model))?))
        };
        let agreement = match replayed() {
            Ok((replayed, rounded)) => {
                let outcomes = Outcomes { plain: [&first, &second], replayed: replayed.each_ref(), rounded: &rounded };
                Comparison::read(model, &outcomes)?.agreement()
            }
            Err(because) => Agreement::No(because),
        };
        first.statistics.restore(model);
        self.newest = Newest::Model;
        match agreement {
            // Gradients that are not finite, in a step that will be skipped.
            Agreement::Unknown => {}
            Agreement::Yes => {
                self.is_due = false;
                self.unchecked = 0;
                self.checked += 1;
                if self.checked == CHECKS {
                    tracing::info!(samples = self.size, "CUDA graphs: replays agree with plain steps");
                    self.status = GraphStatus::Replaying;
                    // Plain micro-steps of this size need their memory in comparisons only.
                    self.device.memory_cleanup();
                }
            }
            Agreement::No(because) => self.refuse(because),
        }
        Ok(first.result)
    }

    /// Replays from the state of the model.
    fn replay_anew<B: MicroBatch>(
        &mut self,
        model: &M,
        micro: B,
        factors: (f64, &LossScale),
    ) -> Result<Outcome<T>, String> {
        self.newest = Newest::Model;
        let result = self.replay(model, micro, factors)?;
        let statistics = self.recorded.as_ref().and_then(MicroStep::statistics);
        let copied = |kept: &Statistics| kept.copied(model);
        Ok(Outcome { result, statistics: statistics.map(copied).unwrap_or_default() })
    }
}
