//! Gradients as a whole.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{FloatDType, Tensor};

/// The sum of gradients, parameter by parameter, in the type that they have.
pub(super) fn added<M: Module>(sum: GradientsParams, gradients: GradientsParams, model: &M) -> GradientsParams {
    if sum.is_empty() {
        return gradients;
    }
    let mut accumulator = GradientsAccumulator::new();
    accumulator.accumulate(model, sum);
    accumulator.accumulate(model, gradients);
    accumulator.grads()
}

/// The gradients times a factor.
#[cfg(feature = "train")]
pub(super) fn times<M: Module>(gradients: GradientsParams, model: &M, factor: f64) -> GradientsParams {
    let mut scaling = Scaling { gradients, factor };
    model.visit(&mut scaling);
    scaling.gradients
}

#[cfg(feature = "train")]
struct Scaling {
    gradients: GradientsParams,
    factor: f64,
}

#[cfg(feature = "train")]
impl ModuleVisitor for Scaling {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.remove::<D>(param.id) {
            self.gradients.register(param.id, gradient.mul_scalar(self.factor));
        }
    }
}

/// Parameters with gradients in groups of at most so many bytes, in the order of the model; one that is larger is alone.
pub(super) fn groups<M: Module>(gradients: &GradientsParams, model: &M, bytes: u64) -> Vec<Vec<ParamId>> {
    let mut grouping = Grouping { gradients, bytes, groups: Vec::new(), room: 0 };
    model.visit(&mut grouping);
    grouping.groups
}

struct Grouping<'g> {
    gradients: &'g GradientsParams,
    bytes: u64,
    groups: Vec<Vec<ParamId>>,
    /// Bytes left in the last group.
    room: u64,
}

impl ModuleVisitor for Grouping<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.get::<D>(param.id) else { return };
        let bytes = (gradient.shape().num_elements() * gradient.dtype().size()) as u64;
        if bytes > self.room || self.groups.is_empty() {
            self.groups.push(Vec::new());
            self.room = self.bytes.max(bytes);
        }
        self.groups.last_mut().expect("BUG: one was just begun").push(param.id);
        self.room -= bytes;
    }
}

/// Copies of the gradients of some parameters, of the same bytes.
pub(super) fn copied<M: Module>(gradients: &GradientsParams, model: &M, ids: &[ParamId]) -> GradientsParams {
    let mut copying = Copying { gradients, ids, copies: GradientsParams::new() };
    model.visit(&mut copying);
    copying.copies
}

struct Copying<'g> {
    gradients: &'g GradientsParams,
    ids: &'g [ParamId],
    copies: GradientsParams,
}

impl ModuleVisitor for Copying<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id).filter(|_| self.ids.contains(&param.id)) {
            self.copies.register(param.id, gradient);
        }
    }
}

/// A value on the device, of shape `[1]`, that depends on every trained parameter of a model; `None` if there is none.
///
/// Which value is of no interest: reading it fails if one of the parameters could not be computed.
pub(super) fn witness<M: Module>(model: &M) -> Option<Tensor<1>> {
    let mut corners = Corners::default();
    model.visit(&mut corners);
    (!corners.0.is_empty()).then(|| Tensor::cat(corners.0, 0).sum())
}

/// A value of each parameter.
#[derive(Default)]
struct Corners(Vec<Tensor<1>>);

impl ModuleVisitor for Corners {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() {
            let value = param.base().without_autodiff();
            let first = value.slice(std::array::from_fn::<_, D, _>(|_| 0..1)).reshape([1]);
            self.0.push(first.cast(FloatDType::F32));
        }
    }
}
