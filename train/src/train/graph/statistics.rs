//! Running statistics in memory that a recording reads and writes.

use burn::module::Module;
use burn::optim::GradientsParams;

use crate::stored::store;
use crate::train::buffers::Buffers;
use crate::visit::visit_floats;

/// New values, kept memory, and true after a failure.
type Loading = (GradientsParams, GradientsParams, bool);

/// Values that forward passes change, in memory of their own.
///
/// A forward pass computes new values in new memory. Recorded work therefore ends with a copy into the kept memory, which
/// the next replay reads.
pub(super) struct Statistics(Buffers);

impl Statistics {
    /// Copies `values` of `model` into memory of their own.
    pub(super) fn new<M: Module>(model: &M, values: &Buffers) -> Self {
        Self(copied(model, values))
    }

    /// Copies the values of `model` into the kept memory. `None` if that memory is shared, or if a value has another shape.
    pub(super) fn loaded<M: Module>(self, model: &M) -> Option<Self> {
        let state = (self.0.current(model).0, self.0.0, false);
        let (_, kept, failed) = visit_floats!(model, (now, kept, failed) = state, Loading, |param| {
            if let (Some(value), Some(memory)) = (now.remove::<D>(param.id), kept.remove::<D>(param.id)) {
                match store(value, Some(memory)) {
                    Some(stored) => kept.register(param.id, stored),
                    None => *failed = true,
                }
            }
        });
        (!failed).then_some(Self(Buffers(kept)))
    }

    /// Gives the kept memory itself to `model` and all its clones.
    pub(super) fn lend<M: Module>(&self, model: &M) {
        self.0.restore(model);
    }

    /// The current values of `model` in place of these, in the memory of `model`.
    pub(super) fn current<M: Module>(&self, model: &M) -> Buffers {
        self.0.current(model)
    }

    /// Copies of the values in other memory.
    pub(super) fn copied<M: Module>(&self, model: &M) -> Buffers {
        copied(model, &self.0)
    }
}

fn copied<M: Module>(model: &M, values: &Buffers) -> Buffers {
    let state = (&values.0, GradientsParams::new());
    let (_, copies) = visit_floats!(model, (values, copies) = state, (&'v GradientsParams, GradientsParams), |param| {
        if let Some(value) = values.get::<D>(param.id) {
            copies.register(param.id, value.mul_scalar(1.0));
        }
    });
    Buffers(copies)
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::{BatchNorm, BatchNormConfig};
    use burn::tensor::{Device, Tensor};

    use super::Statistics;
    use crate::train::buffers::Buffers;
    use crate::train::tests::parameters;

    fn device() -> Device {
        Device::flex().autodiff().gradient_checkpointing()
    }

    fn norm() -> BatchNorm {
        BatchNormConfig::new(2).init(&device())
    }

    fn pass(norm: &BatchNorm, scale: f32) {
        let rows = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 5.0]], &device());
        norm.forward(rows.mul_scalar(scale)).sum().backward();
    }

    /// Values of the model with all updates applied.
    fn values(norm: &BatchNorm) -> Vec<f32> {
        parameters(&norm.valid())
    }

    #[test]
    fn passes_in_the_kept_memory_change_statistics_as_plain_ones_do() {
        let (plain, replayed) = (norm(), norm());
        let before = Buffers::copy_of(&replayed).expect("statistics");
        let mut statistics = Statistics::new(&replayed, &before);
        let mut pass_in_kept = |scale| {
            statistics.lend(&replayed);
            pass(&replayed, scale);
            let kept = std::mem::replace(&mut statistics, Statistics(Buffers::default()));
            statistics = kept.loaded(&replayed).expect("memory of its own");
            before.restore(&replayed);
            statistics.copied(&replayed)
        };
        for scale in [1.0, -2.0] {
            pass(&plain, scale);
            pass_in_kept(scale);
        }
        assert_eq!(values(&replayed), values(&norm()), "they are the model's only when they are handed back");
        pass(&plain, 3.0);
        let copies = pass_in_kept(3.0);
        pass_in_kept(4.0);
        copies.restore(&replayed);
        assert_eq!(values(&replayed), values(&plain));
    }

    #[test]
    fn statistics_of_plain_passes_are_loaded() {
        let norm = norm();
        let before = Buffers::copy_of(&norm).expect("statistics");
        let statistics = Statistics::new(&norm, &before);
        // The update of the second pass waits for a third one.
        for scale in [2.0, 3.0] {
            pass(&norm, scale);
        }
        let statistics = statistics.loaded(&norm).expect("memory of its own");
        let after = values(&norm);
        before.restore(&norm);
        assert_ne!(values(&norm), after);
        statistics.copied(&norm).restore(&norm);
        assert_eq!(values(&norm), after);
    }

    #[test]
    fn shared_statistics_cannot_be_kept() {
        let norm = norm();
        let statistics = Statistics::new(&norm, &Buffers::copy_of(&norm).expect("statistics"));
        statistics.lend(&norm);
        // No pass has replaced the memory that was lent.
        assert!(statistics.loaded(&norm).is_none());
    }
}
