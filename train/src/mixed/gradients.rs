//! Gradients: sums in f32, norms, clipping, and the loss scale.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{FloatDType, Tensor};
use serde::{Deserialize, Serialize};

use super::island::{ModulePath, track_path};
use super::master::is_half;
use super::{Half, MixedError};
use crate::shape::visit_floats;

/// Added to the norm before the division by [`clip`]; the value of PyTorch's `clip_grad_norm_`.
const CLIP_EPSILON: f64 = 1e-6;

/// The gradients of a [compute copy](super::Master::compute_copy) in f32, as those of its master: to be clipped, and given
/// to the optimizer.
///
/// Each 16-bit gradient is released as soon as it is widened.
///
/// # Errors
///
/// [`MixedError::MixedTypes`] if a gradient does not have the type of its parameter.
pub fn widen<M: Module>(gradients: GradientsParams, copy: &M) -> Result<GradientsParams, MixedError> {
    widen_onto(GradientsParams::new(), gradients, copy)
}

/// As [`widen`], added to the sum over previous micro-batches, parameter by parameter, without a second set of fp32
/// gradients.
///
/// # Errors
///
/// As [`widen`]; the sum is lost then.
pub fn widen_onto<M: Module>(
    sum: GradientsParams,
    gradients: GradientsParams,
    copy: &M,
) -> Result<GradientsParams, MixedError> {
    accumulate(copy, sum, gradients, &Factor::Number(1.0), true)
}

/// Factor of a micro-batch's gradients in a sum. Gradients times zero are zero, even if they are NaN.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a handful of them is alive at once")]
pub enum Factor {
    /// Number on the host.
    Number(f64),
    /// Product of a value on the device, in fp32 and of shape `[1]`, and of a number.
    Device(Tensor<1>, f64),
}

/// Adds gradients times a factor to a sum, parameter by parameter. Sums are in fp32 if `widens`, else in the type of the
/// gradients. Each gradient is released as soon as it is added.
///
/// # Errors
///
/// As [`widen`]; the sum is lost then.
pub fn accumulate<M: Module>(
    model: &M,
    sum: GradientsParams,
    gradients: GradientsParams,
    factor: &Factor,
    widens: bool,
) -> Result<GradientsParams, MixedError> {
    let mut visitor = Addition { gradients, sum, factor, widens, path: ModulePath::default(), mixed: None };
    model.visit(&mut visitor);
    visitor.mixed.map_or(Ok(visitor.sum), Err)
}

struct Addition<'f> {
    gradients: GradientsParams,
    sum: GradientsParams,
    factor: &'f Factor,
    widens: bool,
    path: ModulePath,
    mixed: Option<MixedError>,
}

impl ModuleVisitor for Addition<'_> {
    track_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return };
        let (parameter, found) = (param.dtype(), gradient.dtype());
        if parameter != found {
            let path = self.path.path();
            self.mixed.get_or_insert(MixedError::MixedTypes { path, parameter, gradient: found });
            return;
        }
        let gradient = if self.widens && is_half(found) { gradient.cast(FloatDType::F32) } else { gradient };
        let gradient = multiplied(gradient, self.factor);
        let sum = match self.sum.remove::<D>(param.id) {
            Some(sum) => sum + gradient,
            None => gradient,
        };
        self.sum.register(param.id, sum);
    }
}

/// Gradient times a factor.
pub(crate) fn multiplied<const D: usize>(gradient: Tensor<D>, factor: &Factor) -> Tensor<D> {
    match factor {
        #[expect(clippy::float_cmp, reason = "exactly 1 is what bf16 has")]
        Factor::Number(number) if *number == 1.0 => gradient,
        Factor::Number(0.0) => gradient.zeros_like(),
        Factor::Number(number) => gradient.mul_scalar(*number),
        Factor::Device(value, number) => {
            let value = value.clone().to_device(&gradient.device()).cast(gradient.dtype());
            let is_zero = value.clone().equal_elem(0.0).reshape([1; D]).expand(gradient.shape());
            (gradient * value.mul_scalar(*number).reshape([1; D])).mask_fill(is_zero, 0.0)
        }
    }
}

/// The gradients in the types of their parameters, as optimizers take them.
pub fn in_parameter_types<M: Module>(gradients: GradientsParams, model: &M) -> GradientsParams {
    visit_floats!(model, gradients = gradients, GradientsParams, |param| {
        if let Some(gradient) = gradients.remove::<D>(param.id) {
            let gradient = if gradient.dtype() == param.dtype() { gradient } else { gradient.cast(param.dtype()) };
            gradients.register(param.id, gradient);
        }
    })
}

/// The Euclidean norm of all gradients together, in f32, shape `[1]`; `None` if the model has no gradients.
///
/// The norm stays on the device, where [`clip`] uses it. A read of it checks that all gradients are finite: otherwise
/// the norm is infinite or NaN. A norm above 1.8e19 is infinite too, because its square exceeds fp32. On a GPU the read
/// fails if a gradient ran out of memory.
pub fn global_norm<M: Module>(gradients: &GradientsParams, model: &M) -> Option<Tensor<1>> {
    norm_in_parts(gradients, model, PART_VALUES)
}

/// Limit of a vector's values. Smaller gradients are packed into vectors, because a sum takes several kernels, whatever
/// its size. The squares of one vector at a time are allocated: 16 MiB in fp32.
const PART_VALUES: usize = 1 << 22;
/// Tensors that are put together at once at most. Burn makes it one kernel, to which all of them are arguments, and of
/// arguments CUDA has 4 KiB.
pub(crate) const TOGETHER: usize = 128;

fn norm_in_parts<M: Module>(gradients: &GradientsParams, model: &M, part: usize) -> Option<Tensor<1>> {
    let mut squares = SumOfSquares { gradients, part, open: Vec::new(), values: 0, sums: Vec::new() };
    model.visit(&mut squares);
    squares.close();
    // Added up at the end, where it is one kernel.
    let sum = squares.sums.into_iter().reduce(|sum, other| other.to_device(&sum.device()) + sum);
    sum.map(Tensor::sqrt)
}

struct SumOfSquares<'a> {
    gradients: &'a GradientsParams,
    /// Values of a vector at most.
    part: usize,
    /// Gradients of the next vector, of one type and on one device.
    open: Vec<Tensor<1>>,
    values: usize,
    sums: Vec<Tensor<1>>,
}

impl SumOfSquares<'_> {
    fn close(&mut self) {
        self.values = 0;
        let vector = match &self.open[..] {
            [] => return,
            [_] => self.open.pop(),
            _ => Some(Tensor::cat(std::mem::take(&mut self.open), 0)),
        };
        self.sums.extend(vector.map(sum_squares));
    }

    fn has_room(&self, gradient: &Tensor<1>, values: usize) -> bool {
        self.values + values <= self.part
            && self.open.len() < TOGETHER
            && self
                .open
                .last()
                .is_none_or(|last| last.dtype() == gradient.dtype() && last.device() == gradient.device())
    }
}

/// The sum of the squares in f32, of shape `[1]`.
fn sum_squares<const D: usize>(values: Tensor<D>) -> Tensor<1> {
    values.cast(FloatDType::F32).square().sum()
}

impl ModuleVisitor for SumOfSquares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.get::<D>(param.id) else { return };
        let values = gradient.shape().num_elements();
        if values >= self.part {
            self.sums.push(sum_squares(gradient));
            return;
        }
        let gradient = gradient.reshape([values]);
        if !self.has_room(&gradient, values) {
            self.close();
        }
        self.values += values;
        self.open.push(gradient);
    }
}

/// Multiplies all gradients by `min(1, most / (norm + 1e-6))`, so that their [`global_norm`] is at most `most`.
///
/// The host does not wait for the norm. Where it is not finite the gradients mean nothing afterwards: leave such a step
/// out, see [`LossScale::update`].
#[must_use]
pub fn clip<M: Module>(gradients: GradientsParams, model: &M, norm: &Tensor<1>, most: f64) -> GradientsParams {
    multiply(gradients, model, &clip_factor(norm, most))
}

/// The gradients times a factor in fp32, of shape `[1]`.
pub(crate) fn multiply<M: Module>(gradients: GradientsParams, model: &M, factor: &Tensor<1>) -> GradientsParams {
    // A parameter of two modules is visited twice.
    type Multiplied<'v> = (GradientsParams, GradientsParams, &'v Tensor<1>);
    let state = (gradients, GradientsParams::new(), factor);
    let (_, multiplied, _) = visit_floats!(model, (gradients, multiplied, factor) = state, Multiplied<'v>, |param| {
        if let Some(gradient) = gradients.remove::<D>(param.id) {
            let factor = factor.clone().to_device(&gradient.device()).cast(gradient.dtype());
            multiplied.register(param.id, gradient * factor.reshape([1; D]));
        }
    });
    multiplied
}

/// Factor by which [`clip`] multiplies, of shape `[1]`.
pub(crate) fn clip_factor(norm: &Tensor<1>, most: f64) -> Tensor<1> {
    norm.clone().add_scalar(CLIP_EPSILON).recip().mul_scalar(most).clamp_max(1.0)
}

/// The factor by which a loss is multiplied so that gradients in f16 neither vanish nor overflow, found as training goes.
///
/// Works like PyTorch's `GradScaler`. A step whose gradients are not finite is skipped, and the factor is multiplied by
/// `backoff_factor`. After `growth_interval` finite steps in a row it is multiplied by `growth_factor`. The factor
/// stays between `floor` and `ceiling`, which PyTorch does not have.
///
/// Bf16 has the range of f32: [`LossScale::none`] changes nothing, and still leaves out steps that are not finite.
///
/// Save the scale with checkpoints. It serialises with its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// The factor now.
    scale: f64,
    /// Finite steps since it last changed.
    finite_steps: u32,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: u32,
    floor: f64,
    ceiling: f64,
}

/// Outcome of an optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum StepOutcome {
    /// The gradients are finite: the optimizer takes them.
    Applied,
    /// They are not: parameters and optimizer state stay as they are.
    Skipped,
}

impl Default for LossScale {
    /// 65536 at first, doubled after 2000 finite steps, halved after one that is not, between 1 and 2^24.
    fn default() -> Self {
        Self {
            scale: 65536.0,
            finite_steps: 0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            floor: 1.0,
            ceiling: 16_777_216.0,
        }
    }
}

impl LossScale {
    /// The scale for a type: the default for fp16, [`none`](Self::none) for bf16.
    pub fn for_half(half: Half) -> Self {
        match half {
            Half::F16 => Self::default(),
            Half::Bf16 => Self::none(),
        }
    }

    /// Always 1.
    pub fn none() -> Self {
        Self { scale: 1.0, ceiling: 1.0, ..Self::default() }
    }

    /// The same with another factor to begin with.
    #[must_use]
    pub fn with_init_scale(self, scale: f64) -> Self {
        Self { scale: scale.clamp(self.floor, self.ceiling.max(self.floor)), ..self }
    }

    /// The same, growing after this many finite steps in a row.
    #[must_use]
    pub fn with_growth_interval(self, steps: u32) -> Self {
        Self { growth_interval: steps.max(1), ..self }
    }

    /// The factor that the next loss is multiplied by.
    pub fn value(&self) -> f64 {
        self.scale
    }

    /// The loss in f32, times the factor: what `backward` is called on.
    ///
    /// All micro-batches of an optimizer step have the same factor, as it changes in [`update`](Self::update) alone.
    pub fn scale(&self, loss: Tensor<1>) -> Tensor<1> {
        let loss = loss.cast(FloatDType::F32);
        if self.is_one() { loss } else { loss.mul_scalar(self.scale) }
    }

    /// [`widen`], with the factor divided out of the gradients in f32.
    ///
    /// # Errors
    ///
    /// As [`widen`].
    pub fn widen<M: Module>(&self, gradients: GradientsParams, copy: &M) -> Result<GradientsParams, MixedError> {
        self.widen_onto(GradientsParams::new(), gradients, copy)
    }

    /// [`widen_onto`], with the factor divided out of the gradients in f32.
    ///
    /// # Errors
    ///
    /// As [`widen_onto`].
    pub fn widen_onto<M: Module>(
        &self,
        sum: GradientsParams,
        gradients: GradientsParams,
        copy: &M,
    ) -> Result<GradientsParams, MixedError> {
        accumulate(copy, sum, gradients, &Factor::Number(self.scale.recip()), true)
    }

    /// Decides whether a step is applied, and adapts the factor; `finite` is true if the
    /// [`global_norm`] of the gradients is.
    pub fn update(&mut self, finite: bool) -> StepOutcome {
        if !finite {
            self.scale = (self.scale * self.backoff_factor).max(self.floor);
            self.finite_steps = 0;
            return StepOutcome::Skipped;
        }
        self.finite_steps += 1;
        if self.finite_steps >= self.growth_interval {
            self.scale = (self.scale * self.growth_factor).min(self.ceiling);
            self.finite_steps = 0;
        }
        StepOutcome::Applied
    }

    #[expect(clippy::float_cmp, reason = "exactly 1 is what bf16 has")]
    fn is_one(&self) -> bool {
        self.scale == 1.0
    }
}

#[cfg(test)]
mod tests;
