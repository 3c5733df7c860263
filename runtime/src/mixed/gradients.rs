use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{FloatDType, Tensor};

use super::MixedError;
use super::place::{Place, keeps_place};

/// What [`clip`] adds to the norm it divides by; the value of PyTorch's `clip_grad_norm_`.
const CLIP_EPSILON: f64 = 1e-6;

/// The gradients of a [compute copy](super::Master::compute_copy) in f32, as those of its master: to be added up over
/// micro-batches, clipped, and given to the optimizer.
///
/// Each 16-bit gradient is released as soon as it is widened.
///
/// # Errors
///
/// [`MixedError::MixedTypes`] if a gradient does not have the type of its parameter.
pub fn widen<M: Module>(gradients: GradientsParams, copy: &M) -> Result<GradientsParams, MixedError> {
    widen_by(gradients, copy, 1.0)
}

/// [`widen`], and a factor in f32.
pub(super) fn widen_by<M: Module>(
    gradients: GradientsParams,
    copy: &M,
    factor: f64,
) -> Result<GradientsParams, MixedError> {
    let mut visitor = WidenGradients {
        narrow: gradients,
        wide: GradientsParams::new(),
        factor,
        place: Place::default(),
        mixed: None,
    };
    copy.visit(&mut visitor);
    visitor.mixed.map_or(Ok(visitor.wide), Err)
}

struct WidenGradients {
    narrow: GradientsParams,
    wide: GradientsParams,
    factor: f64,
    place: Place,
    mixed: Option<MixedError>,
}

impl ModuleVisitor for WidenGradients {
    keeps_place!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.narrow.remove::<D>(param.id) else { return };
        let (parameter, found) = (param.dtype(), gradient.dtype());
        if parameter != found {
            let path = self.place.path();
            self.mixed.get_or_insert(MixedError::MixedTypes { path, parameter, gradient: found });
            return;
        }
        let gradient = gradient.cast(FloatDType::F32);
        #[expect(clippy::float_cmp, reason = "exactly 1 is what bf16 has")]
        let scaled = if self.factor == 1.0 { gradient } else { gradient.mul_scalar(self.factor) };
        self.wide.register(param.id, scaled);
    }
}

/// The Euclidean norm of all gradients together, in f32, shape `[1]`; `None` if the model has no gradients.
///
/// It is not read: it stays on the device, where [`clip`] uses it. Read, it says whether all gradients are finite, as it
/// depends on each of them: it is infinite or not a number if one of them is (or if the norm is above 1.8e19, whose
/// square f32 does not hold), and on a GPU the reading fails if the memory for one of them could not be had.
pub fn global_norm<M: Module>(gradients: &GradientsParams, model: &M) -> Option<Tensor<1>> {
    let mut visitor = SumOfSquares { gradients, sum: None };
    model.visit(&mut visitor);
    visitor.sum.map(Tensor::sqrt)
}

struct SumOfSquares<'a> {
    gradients: &'a GradientsParams,
    sum: Option<Tensor<1>>,
}

impl ModuleVisitor for SumOfSquares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.get::<D>(param.id) else { return };
        let squares = gradient.cast(FloatDType::F32).square().sum();
        self.sum = Some(match self.sum.take() {
            Some(sum) => squares.to_device(&sum.device()) + sum,
            None => squares,
        });
    }
}

/// Multiplies all gradients by `min(1, most / (norm + 1e-6))`, so that their [`global_norm`] is at most `most`.
///
/// The host does not wait for the norm. Where it is not finite neither are the gradients afterwards: leave such a step
/// out, see [`LossScale::update`](super::LossScale::update).
#[must_use]
pub fn clip<M: Module>(gradients: GradientsParams, model: &M, norm: &Tensor<1>, most: f64) -> GradientsParams {
    let factor = norm.clone().add_scalar(CLIP_EPSILON).recip().mul_scalar(most).clamp_max(1.0);
    let mut visitor = Multiply { gradients, factor };
    model.visit(&mut visitor);
    visitor.gradients
}

struct Multiply {
    gradients: GradientsParams,
    factor: Tensor<1>,
}

impl ModuleVisitor for Multiply {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return };
        let factor = self.factor.clone().to_device(&gradient.device()).cast(gradient.dtype());
        self.gradients.register(param.id, gradient * factor.reshape([1; D]));
    }
}
