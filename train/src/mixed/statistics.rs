use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;

use super::MixedError;
use super::module_path::{ModulePath, track_path};

/// Checks that every running statistic of the model is in an `InF32`.
///
/// Burn shows a `RunningState` to visitors like any other parameter. The difference: a `RunningState` refuses to keep
/// gradients, whatever a mapper does.
pub(super) fn check<M: Module>(model: &M) -> Result<(), MixedError> {
    let mut refusing = Refusing::default();
    model.clone().map(&mut AskForGradients).visit(&mut refusing);
    if refusing.paths.is_empty() { Ok(()) } else { Err(MixedError::HalfStatistics { paths: refusing.paths }) }
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
    paths: Vec<String>,
}

impl ModuleVisitor for Refusing {
    track_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if can_refuse(param) && !param.is_require_grad() && !self.path.is_f32() {
            self.paths.push(self.path.path());
        }
    }
}

/// Packed tensors have no gradients. Nor has anything without autodiff; but there statistics are not updated either.
fn can_refuse<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    param.dtype().is_float() && param.is_autodiff()
}
