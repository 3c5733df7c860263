//! Running statistics of norms, which forward passes change.

use std::collections::HashSet;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use crate::visit::visit_floats;

/// The values that no gradient changes, as they were.
///
/// All clones of a model share the running statistics of its norms, and norms apply the last update in the next forward
/// pass. A clone therefore does not undo a failed forward pass.
pub(super) struct Buffers {
    values: GradientsParams,
    ids: HashSet<ParamId>,
}

impl Buffers {
    /// The values of `model`; `None` where it has none, so that nothing can be lost.
    pub(super) fn copy_of<M: Module>(model: &M) -> Option<Self> {
        let mut seen = Self { values: GradientsParams::new(), ids: HashSet::new() };
        model.visit(&mut seen);
        if seen.ids.is_empty() {
            return None;
        }
        // Writes the updates that wait.
        drop(model.valid());
        let mut buffers = Self { values: GradientsParams::new(), ids: HashSet::new() };
        model.visit(&mut buffers);
        Some(buffers)
    }

    /// Returns true if `model` has other values now. Waits for the device.
    fn differ<M: Module>(&self, model: &M) -> bool {
        // Writes the updates that wait.
        drop(model.valid());
        let state = (&self.values, false);
        let (_, differ) = visit_floats!(model, (before, differ) = state, (&'v GradientsParams, bool), |param| {
            if let Some(before) = before.get::<D>(param.id) {
                let now = param.base().without_autodiff();
                // A value that cannot be read may have changed.
                *differ |= !before.without_autodiff().equal(now).all().try_into_scalar::<bool>().unwrap_or(false);
            }
        });
        differ
    }

    /// Writes the values back into `model` and all its clones.
    pub(super) fn restore<M: Module>(mut self, model: &M) {
        // What waits is written first, so that it cannot be written later.
        drop(model.valid());
        drop(model.clone().map(&mut self));
    }
}

impl ModuleVisitor for Buffers {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.is_require_grad() {
            self.ids.insert(param.id);
            self.values.register(param.id, param.base());
        }
    }
}

impl ModuleMapper for Buffers {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !self.ids.contains(&param.id) {
            return param;
        }
        match self.values.remove::<D>(param.id) {
            Some(value) => param.map(|_| value),
            None => param,
        }
    }
}

/// Returns true if `forward` changes values of the model that are not trained.
pub(super) fn forward_changes_buffers<M: Module>(model: &M, forward: impl FnOnce() -> bool) -> bool {
    let Some(before) = Buffers::copy_of(model) else { return false };
    let changed = forward() && before.differ(model);
    before.restore(model);
    changed
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::{BatchNorm, BatchNormConfig, LinearConfig};
    use burn::tensor::{Device, Tensor};

    use super::{Buffers, forward_changes_buffers};

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
        assert!(forward_changes_buffers(&norm, || norm.forward(input()).dims() == [2, 2]));
        assert_eq!(statistics(&norm), before);
        assert!(!forward_changes_buffers(&norm, || true));
        let frozen = LinearConfig::new(2, 2).init(&device).no_grad();
        assert!(!forward_changes_buffers(&frozen, || frozen.forward(input()).dims() == [2, 2]));
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
