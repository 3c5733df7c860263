use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{FloatDType, Tensor};

use super::MixedError;
use super::cast::is_half;
use super::module_path::{ModulePath, track_path};
use crate::visit::visit_floats;

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
    add(sum, gradients, copy, &Factor::Number(1.0), true)
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
pub(crate) fn add<M: Module>(
    sum: GradientsParams,
    gradients: GradientsParams,
    model: &M,
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

fn multiplied<const D: usize>(gradient: Tensor<D>, factor: &Factor) -> Tensor<D> {
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
        self.sums.extend(vector.map(of_squares));
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
fn of_squares<const D: usize>(values: Tensor<D>) -> Tensor<1> {
    values.cast(FloatDType::F32).square().sum()
}

impl ModuleVisitor for SumOfSquares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.get::<D>(param.id) else { return };
        let values = gradient.shape().num_elements();
        if values >= self.part {
            self.sums.push(of_squares(gradient));
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
/// out, see [`LossScale::update`](super::LossScale::update).
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

#[cfg(test)]
mod tests;
