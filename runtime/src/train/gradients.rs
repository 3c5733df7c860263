//! Gradients as a whole.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{FloatDType, Tensor};

/// The global norm of the gradients, in f32: one value on the device, of shape `[1]`, that depends on every gradient;
/// `None` without gradients.
///
/// It is finite if all of them are, and reading it fails if one of them could not be computed.
pub(super) fn global_norm<M: Module>(gradients: &GradientsParams, model: &M) -> Option<Tensor<1>> {
    let mut squares = Squares { gradients, sum: None };
    model.visit(&mut squares);
    squares.sum.map(Tensor::sqrt)
}

struct Squares<'g> {
    gradients: &'g GradientsParams,
    sum: Option<Tensor<1>>,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.get::<D>(param.id) else { return };
        let gradient = gradient.without_autodiff().cast(FloatDType::F32);
        let squares = gradient.clone().mul(gradient).sum();
        self.sum = Some(match self.sum.take() {
            Some(sum) => sum + squares,
            None => squares,
        });
    }
}

/// The gradients times a factor of shape `[1]` on the device.
pub(super) fn scaled<M: Module>(gradients: GradientsParams, model: &M, factor: &Tensor<1>) -> GradientsParams {
    let mut scaling = Scaling { gradients, factor: Factor::Device(factor), scaled: GradientsParams::new() };
    model.visit(&mut scaling);
    scaling.scaled
}

/// The gradients times a factor.
#[cfg(feature = "train")]
pub(super) fn times<M: Module>(gradients: GradientsParams, model: &M, factor: f64) -> GradientsParams {
    let mut scaling = Scaling { gradients, factor: Factor::Host(factor), scaled: GradientsParams::new() };
    model.visit(&mut scaling);
    scaling.scaled
}

#[derive(Clone, Copy)]
enum Factor<'f> {
    Device(&'f Tensor<1>),
    #[cfg(feature = "train")]
    Host(f64),
}

struct Scaling<'f> {
    gradients: GradientsParams,
    factor: Factor<'f>,
    scaled: GradientsParams,
}

impl ModuleVisitor for Scaling<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return };
        let scaled = match self.factor {
            Factor::Device(factor) => {
                let factor = factor.clone().cast(gradient.dtype());
                gradient.mul(factor.reshape([1; D]))
            }
            #[cfg(feature = "train")]
            Factor::Host(factor) => gradient.mul_scalar(factor),
        };
        self.scaled.register(param.id, scaled);
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
