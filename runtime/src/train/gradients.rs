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

/// A value on the device, of shape `[1]`, that depends on every trained parameter of a model that is `seen`; `None` if
/// there is none.
///
/// Which value is of no interest: reading it fails if one of the parameters could not be computed.
pub(super) fn witness<M: Module>(model: &M, seen: impl Fn(ParamId) -> bool) -> Option<Tensor<1>> {
    let mut corners = Corners { seen, values: Vec::new() };
    model.visit(&mut corners);
    let values = corners.values;
    (!values.is_empty()).then(|| Tensor::cat(values, 0).sum())
}

/// A value of each parameter.
struct Corners<F> {
    seen: F,
    values: Vec<Tensor<1>>,
}

impl<F: Fn(ParamId) -> bool> ModuleVisitor for Corners<F> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() && (self.seen)(param.id) {
            let value = param.base().without_autodiff();
            let first = value.slice(std::array::from_fn::<_, D, _>(|_| 0..1)).reshape([1]);
            self.values.push(first.cast(FloatDType::F32));
        }
    }
}

/// Bytes of a model's trained parameters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub all: u64,
    /// Of the largest of them.
    pub largest: u64,
}

impl Sizes {
    pub(super) fn of<M: Module>(model: &M) -> Self {
        let mut sizes = Self::default();
        model.visit(&mut sizes);
        sizes
    }
}

impl ModuleVisitor for Sizes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() {
            let bytes = (param.shape().num_elements() * param.dtype().size()) as u64;
            *self = Self { all: self.all + bytes, largest: self.largest.max(bytes) };
        }
    }
}
