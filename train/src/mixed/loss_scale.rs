use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{FloatDType, Tensor};
use serde::{Deserialize, Serialize};

use super::gradients::{Factor, add};
use super::{Half, MixedError};

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

    /// [`widen`](super::widen), with the factor divided out of the gradients in f32.
    ///
    /// # Errors
    ///
    /// As [`widen`](super::widen).
    pub fn widen<M: Module>(&self, gradients: GradientsParams, copy: &M) -> Result<GradientsParams, MixedError> {
        self.widen_onto(GradientsParams::new(), gradients, copy)
    }

    /// [`widen_onto`](super::widen_onto), with the factor divided out of the gradients in f32.
    ///
    /// # Errors
    ///
    /// As [`widen_onto`](super::widen_onto).
    pub fn widen_onto<M: Module>(
        &self,
        sum: GradientsParams,
        gradients: GradientsParams,
        copy: &M,
    ) -> Result<GradientsParams, MixedError> {
        add(sum, gradients, copy, &Factor::Number(self.scale.recip()), true)
    }

    /// Decides whether a step is applied, and adapts the factor; `finite` is true if the
    /// [`global_norm`](super::global_norm) of the gradients is.
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
mod tests {
    use super::{LossScale, StepOutcome};

    /// `torch.amp.GradScaler(init_scale=4.0, growth_interval=3)` after each of these steps (PyTorch's
    /// `_amp_update_scale_`): a step that is not finite halves the scale and restarts the count; the third finite step
    /// in a row doubles it.
    #[test]
    fn the_factor_is_that_of_pytorch() {
        let mut scale = LossScale::default().with_init_scale(4.0).with_growth_interval(3);
        let steps = [
            (true, 4.0),
            (true, 4.0),
            (true, 8.0),
            (true, 8.0),
            (false, 4.0),
            (true, 4.0),
            (true, 4.0),
            (true, 8.0),
            (false, 4.0),
            (false, 2.0),
        ];
        for (finite, after) in steps {
            let step = scale.update(finite);
            assert_eq!(step, if finite { StepOutcome::Applied } else { StepOutcome::Skipped });
            assert!((scale.value() - after).abs() < f64::EPSILON, "{} is not {after}", scale.value());
        }
    }

    #[test]
    fn it_begins_where_pytorch_begins() {
        let mut scale = LossScale::default();
        assert!((scale.value() - 65536.0).abs() < f64::EPSILON);
        for _ in 0..1999 {
            assert_eq!(scale.update(true), StepOutcome::Applied);
        }
        assert!((scale.value() - 65536.0).abs() < f64::EPSILON);
        assert_eq!(scale.update(true), StepOutcome::Applied);
        assert!((scale.value() - 131_072.0).abs() < f64::EPSILON);
    }

    #[test]
    fn it_stays_between_floor_and_ceiling() {
        let mut scale = LossScale::default().with_growth_interval(1);
        for (finite, bound) in [(false, 1.0), (true, 16_777_216.0)] {
            for _ in 0..64 {
                let _ = scale.update(finite);
            }
            assert!((scale.value() - bound).abs() < f64::EPSILON);
        }
    }

    #[test]
    fn none_stays_one_and_still_leaves_steps_out() {
        let mut scale = LossScale::none().with_growth_interval(1);
        assert_eq!(
            [true, false, true].map(|finite| scale.update(finite)),
            [StepOutcome::Applied, StepOutcome::Skipped, StepOutcome::Applied]
        );
        assert!((scale.value() - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_saved_one_goes_on_as_the_one_that_was_saved() {
        let mut scale = LossScale::default().with_growth_interval(3);
        for finite in [true, false, true, true] {
            let _ = scale.update(finite);
        }
        let mut restored: LossScale = serde_json::from_str(&serde_json::to_string(&scale).unwrap()).unwrap();
        for finite in [true, true, false, true] {
            assert_eq!(scale.update(finite), restored.update(finite));
            assert_eq!(scale, restored);
        }
    }
}
