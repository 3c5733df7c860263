//! Running statistics of norms, which forward passes change.

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use crate::stored::with_autodiff_of;
use crate::visit::visit_floats;

/// Values of a model that no gradient changes, without autodiff.
///
/// All clones of a model share the running statistics of its norms, and norms apply the last update in the next forward
/// pass. A clone therefore does not undo a failed forward pass.
#[derive(Default)]
pub(super) struct Buffers(pub GradientsParams);

impl Buffers {
    /// The values of `model`; `None` without any.
    pub(super) fn copy_of<M: Module>(model: &M) -> Option<Self> {
        if untrained(model).is_empty() {
            return None;
        }
        apply_updates(model);
        Some(Self(untrained(model)))
    }

    /// The current values of `model` in place of these.
    pub(super) fn current<M: Module>(&self, model: &M) -> Self {
        apply_updates(model);
        let state = (&self.0, GradientsParams::new());
        let (_, now) = visit_floats!(model, (known, now) = state, (&'v GradientsParams, GradientsParams), |param| {
            if known.get::<D>(param.id).is_some() {
                now.register(param.id, param.base().without_autodiff());
            }
        });
        Self(now)
    }

    /// The values that `model` has changed since; `None` without any. Waits for the device.
    fn changed<M: Module>(&self, model: &M) -> Option<Self> {
        type Both<'v> = (&'v GradientsParams, &'v GradientsParams, GradientsParams);
        let now = self.current(model).0;
        let state = (&self.0, &now, GradientsParams::new());
        let (.., changed) = visit_floats!(model, (before, now, changed) = state, Both<'v>, |param| {
            if let (Some(before), Some(now)) = (before.get::<D>(param.id), now.get::<D>(param.id)) {
                // A value that cannot be read may have changed.
                if !before.clone().equal(now).all().try_into_scalar::<bool>().unwrap_or(false) {
                    changed.register(param.id, before);
                }
            }
        });
        (!changed.is_empty()).then_some(Self(changed))
    }

    /// Writes the values into `model` and all its clones.
    pub(super) fn restore<M: Module>(&self, model: &M) {
        // Otherwise the next forward pass would apply them over these values.
        apply_updates(model);
        drop(model.clone().map(&mut Restore(&self.0)));
    }
}

fn untrained<M: Module>(model: &M) -> GradientsParams {
    visit_floats!(model, values = GradientsParams::new(), GradientsParams, |param| {
        if !param.is_require_grad() && param.dtype().is_float() {
            values.register(param.id, param.base().without_autodiff());
        }
    })
}

/// Applies updates of running statistics that wait for the next forward pass.
pub(super) fn apply_updates<M: Module>(model: &M) {
    drop(model.valid());
}

struct Restore<'v>(&'v GradientsParams);

impl ModuleMapper for Restore<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match self.0.get::<D>(param.id) {
            Some(value) => param.map(|old| with_autodiff_of(value, &old.device())),
            None => param,
        }
    }
}

/// Returns the values that `forward` changes, as they were before, and restores them. `None` without any.
///
/// # Errors
///
/// The error of `forward`.
pub(super) fn changed_by<M: Module, E>(
    model: &M,
    forward: impl FnOnce() -> Result<(), E>,
) -> Result<Option<Buffers>, E> {
    let Some(before) = Buffers::copy_of(model) else { return Ok(None) };
    let changed = forward().map(|()| before.changed(model));
    before.restore(model);
    changed
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::{BatchNorm, BatchNormConfig, LinearConfig};
    use burn::tensor::{Device, Tensor};

    use super::{Buffers, changed_by};

    fn statistics(norm: &BatchNorm) -> Vec<f32> {
        let sides = [norm.running_mean.value_sync(), norm.running_var.value_sync()];
        sides.into_iter().flat_map(|side| side.into_data().iter::<f32>().collect::<Vec<_>>()).collect()
    }

    #[test]
    fn forward_passes_that_failed_leave_no_trace_in_running_statistics() {
        let device = Device::flex().autodiff();
        let batch = |scale: f32| Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 5.0]], &device).mul_scalar(scale);
        let (norm, undisturbed) = (BatchNormConfig::new(2).init(&device), BatchNormConfig::new(2).init(&device));
        for norm in [&norm, &undisturbed] {
            norm.forward(batch(1.0));
        }
        let before = Buffers::copy_of(&norm).unwrap();
        norm.forward(batch(1e30));
        norm.forward(batch(f32::NAN));
        before.restore(&norm.clone());
        for norm in [&norm, &undisturbed] {
            norm.forward(batch(2.0));
        }
        assert_eq!(statistics(&norm), statistics(&undisturbed));
        assert!(norm.gamma.is_require_grad() && norm.gamma.val().is_autodiff());
    }

    #[test]
    fn forward_passes_change_running_statistics_and_nothing_else() {
        let device = Device::flex().autodiff();
        let input = || Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 5.0]], &device);
        let norm = BatchNormConfig::new(2).init(&device);
        let before = statistics(&norm);
        let frozen = LinearConfig::new(2, 2).init(&device).no_grad();
        let model = (norm.clone(), frozen);
        let passed = || {
            drop(model.1.forward(norm.forward(input())));
            Ok::<_, ()>(())
        };
        let changed = changed_by(&model, passed).unwrap().unwrap();
        assert_eq!(changed.0.len(), 2, "mean and variance");
        let failed = || {
            drop(norm.forward(input()));
            Err("out of memory")
        };
        assert_eq!(changed_by(&model, failed).err(), Some("out of memory"));
        assert_eq!(statistics(&norm), before);
        assert!(changed_by(&model, || Ok::<_, ()>(())).unwrap().is_none());
    }

    #[test]
    fn restoring_keeps_gradient_checkpointing() {
        let device = Device::flex().autodiff().gradient_checkpointing();
        let norm = BatchNormConfig::new(2).init(&device);
        Buffers::copy_of(&norm).unwrap().restore(&norm);
        assert_eq!(norm.gamma.val().gradient_checkpointing_strategy(), device.gradient_checkpointing_strategy());
        norm.forward(Tensor::<2>::ones([3, 2], &device)).sum().backward();
    }

    #[test]
    fn a_model_of_trained_parameters_has_none() {
        let linear = LinearConfig::new(2, 2).init(&Device::flex().autodiff());
        assert!(Buffers::copy_of(&linear).is_none());
        assert!(Buffers::copy_of(&linear.no_grad()).is_some());
    }
}
