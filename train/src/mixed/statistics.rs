use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;

use super::MixedError;
use super::module_path::{ModulePath, track_path};

/// Checks that every running statistic of the model is in an `InF32`.
pub(super) fn check<M: Module>(model: &M) -> Result<(), MixedError> {
    let paths: Vec<_> = running_states(model).into_iter().filter(|(_, is_f32)| !is_f32).map(|(path, _)| path).collect();
    if paths.is_empty() { Ok(()) } else { Err(MixedError::HalfStatistics { paths }) }
}

/// Paths of a model's running states, and true for those in an `InF32`.
///
/// Burn shows a `RunningState` to visitors like any other parameter. The difference: a `RunningState` refuses to keep
/// gradients, whatever a mapper does.
pub(crate) fn running_states<M: Module>(model: &M) -> Vec<(String, bool)> {
    let mut refusing = Refusing::default();
    model.clone().map(&mut AskForGradients).visit(&mut refusing);
    refusing.states
}

/// Values stay as they are: what it maps may be shared with the model.
struct AskForGradients;

impl ModuleMapper for AskForGradients {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !can_refuse(&param) {
            return param;
        }
        param.map(|tensor| tensor.detach().require_grad())
    }
}

#[derive(Default)]
struct Refusing {
    path: ModulePath,
    states: Vec<(String, bool)>,
}

impl ModuleVisitor for Refusing {
    track_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if can_refuse(param) && !param.is_require_grad() {
            self.states.push((self.path.path(), self.path.is_f32()));
        }
    }
}

/// Packed tensors have no gradients. Nor has anything without autodiff; but there statistics are not updated either.
fn can_refuse<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    param.dtype().is_float() && param.is_autodiff()
}
