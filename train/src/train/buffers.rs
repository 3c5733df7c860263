//! Running statistics of norms and other running states, which forward passes change.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{FloatDType, Tensor};
use gpu_tuned_observe::log::warn_user;

use super::outcome::{StepError, StepFailure};
use super::update::watched_read;
use crate::mixed::{ModulePath, running_states, track_path};
use crate::shape::{visit_floats, with_autodiff_of};

/// Values of a model that no gradient changes, without autodiff.
///
/// All clones of a model share the running statistics of its norms, and norms apply the last update in the next forward
/// pass. A clone therefore does not undo a failed forward pass.
#[derive(Default)]
pub(super) struct Buffers(pub GradientsParams);

impl Buffers {
    /// The values of `model`; `None` without any.
    pub(super) fn copy_of<M: Module>(model: &M) -> Option<Self> {
        if untrained(model).is_empty() {
            return None;
        }
        apply_updates(model);
        Some(Self(untrained(model)))
    }

    /// The current values of `model` in place of these.
    pub(super) fn current<M: Module>(&self, model: &M) -> Self {
        apply_updates(model);
        let state = (&self.0, GradientsParams::new());
        let (_, now) = visit_floats!(model, (known, now) = state, (&'v GradientsParams, GradientsParams), |param| {
            if known.get::<D>(param.id).is_some() {
                now.register(param.id, param.base().without_autodiff());
            }
        });
        Self(now)
    }

    /// The values that `model` has changed since; `None` without any. Waits for the device.
    fn changed<M: Module>(&self, model: &M) -> Option<Self> {
        type Both<'v> = (&'v GradientsParams, &'v GradientsParams, GradientsParams);
        let now = self.current(model).0;
        let state = (&self.0, &now, GradientsParams::new());
        let (.., changed) = visit_floats!(model, (before, now, changed) = state, Both<'v>, |param| {
            if let (Some(before), Some(now)) = (before.get::<D>(param.id), now.get::<D>(param.id)) {
                // A value that cannot be read may have changed.
                if !before.clone().equal(now).all().try_into_scalar::<bool>().unwrap_or(false) {
                    changed.register(param.id, before);
                }
            }
        });
        (!changed.is_empty()).then_some(Self(changed))
    }

    /// Writes the values into `model` and all its clones.
    pub(super) fn restore<M: Module>(&self, model: &M) {
        // Otherwise the next forward pass would apply them over these values.
        apply_updates(model);
        drop(model.clone().map(&mut Restore(&self.0)));
    }
}

fn untrained<M: Module>(model: &M) -> GradientsParams {
    visit_floats!(model, values = GradientsParams::new(), GradientsParams, |param| {
        if !param.is_require_grad() && param.dtype().is_float() {
            values.register(param.id, param.base().without_autodiff());
        }
    })
}

/// Applies updates of running statistics that wait for the next forward pass.
fn apply_updates<M: Module>(model: &M) {
    drop(model.valid());
}

struct Restore<'v>(&'v GradientsParams);

impl ModuleMapper for Restore<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match self.0.get::<D>(param.id) {
            Some(value) => param.map(|old| with_autodiff_of(value, &old.device())),
            None => param,
        }
    }
}

/// Returns the values that `forward` changes, as they were before, and restores them. `None` without any.
///
/// # Errors
///
/// The error of `forward`.
pub(super) fn changed_by<M: Module, E>(
    model: &M,
    forward: impl FnOnce() -> Result<(), E>,
) -> Result<Option<Buffers>, E> {
    let Some(before) = Buffers::copy_of(model) else { return Ok(None) };
    let changed = forward().map(|()| before.changed(model));
    before.restore(model);
    changed
}

/// Field of Burn's `BatchNorm` with the running variance of each channel.
const FIELD: &str = "running_var";
/// Running states of Burn's `BatchNorm`.
const FIELDS: [&str; 2] = ["running_mean", FIELD];
/// Factor of a running variance that the variance of a batch was zero for: 1 less Burn's default momentum.
const DECAY: f32 = 0.9;
/// Relative rounding errors of a factor.
const ROUNDING: f32 = 1e-5;

/// Batch norms of a model, as steps deal with them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BatchNorms {
    pub exist: bool,
    /// True until a micro-batch of one sample has passed the check of its statistics.
    pub checks_variance: bool,
    pub warned: bool,
}

impl BatchNorms {
    pub(super) fn from_model<M: Module>(model: &M) -> Self {
        let exist = !Found::in_model(model).variances.is_empty();
        Self { exist, checks_variance: exist, warned: false }
    }

    /// Warns once of a step of one sample where micro-batches have more.
    pub(super) fn warn(&mut self, samples: usize, micro_batch: usize) {
        if !self.exist || samples != 1 || micro_batch == 1 || std::mem::replace(&mut self.warned, true) {
            return;
        }
        warn_user(
            "a step has one sample, and batch norms compute their statistics from it alone: leave the last step of an epoch out \
             with `drop_last = true` in `#[gpu_tuned(…)]`, or take all steps of a size that divides the data",
        );
    }
}

/// Path of a running state that is not a batch norm's, such as the codebook of a VQ-VAE.
pub(super) fn other_running_state<M: Module>(model: &M) -> Option<String> {
    let is_norms = |path: &str| FIELDS.iter().any(|field| path.ends_with(field));
    running_states(model).into_iter().map(|(path, _)| path).find(|path| !is_norms(path))
}

/// Warns of a running state in a step of several micro-batches or ranks.
pub(super) fn warn_of_running_state(path: &str) {
    warn_user(&format!(
        "`{path}` is a running state, which each micro-batch changes, on each rank by itself: steps depend on the micro-batch and \
         the number of ranks. Change it once a step, outside of the loss, or set `whole_batch_loss = true` in `#[gpu_tuned(…)]`"
    ));
}

/// Running variances of a model's batch norms, read from the device.
pub(super) struct Variances(Vec<(String, Vec<f32>)>);

impl Variances {
    /// Reads the variances, and waits for the device.
    pub(super) fn read<M: Module>(model: &M) -> Result<Self, StepFailure> {
        // Norms apply an update in the next forward pass.
        apply_updates(model);
        let found = Found::in_model(model).variances.into_iter();
        let read = found.map(|(path, values)| Ok((path, watched_read(|| values.try_into_vec_as::<f32>())?)));
        read.collect::<Result<_, StepFailure>>().map(Self)
    }

    /// Compares with the variances after one more forward pass.
    ///
    /// # Errors
    ///
    /// [`StepError::OneValue`] if the pass had a variance of zero in all channels of a norm.
    pub(super) fn check<M: Module>(&self, model: &M) -> Result<(), StepFailure> {
        let after = Self::read(model)?;
        let was_zero = |before: &[f32], after: &[f32]| {
            let factor = after[0] / before[0];
            let is_decay = |(before, after): (&f32, &f32)| (after / before - factor).abs() <= ROUNDING;
            // A norm of one channel has no other channel to compare with.
            let is_known = before.len() > 1 || (factor - DECAY).abs() <= ROUNDING;
            is_known && factor < 1.0 && before.iter().zip(after).all(is_decay)
        };
        for ((path, before), (_, after)) in self.0.iter().zip(&after.0) {
            if !before.is_empty() && was_zero(before, after) {
                return Err(StepError::OneValue { path: path.clone() }.into());
            }
        }
        Ok(())
    }
}

/// Running variances on the device, without autodiff and in fp32, with the paths of their norms.
#[derive(Default)]
struct Found {
    variances: Vec<(String, Tensor<1>)>,
    path: ModulePath,
}

impl Found {
    fn in_model<M: Module>(model: &M) -> Self {
        let mut found = Self::default();
        model.visit(&mut found);
        found
    }
}

impl ModuleVisitor for Found {
    track_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = self.path.path();
        let Some(norm) = path.strip_suffix(FIELD).filter(|_| !param.is_require_grad() && param.is_autodiff()) else {
            return;
        };
        let values = param.base().without_autodiff();
        let channels = values.shape().num_elements();
        self.variances.push((norm.trim_end_matches('.').to_owned(), values.reshape([channels]).cast(FloatDType::F32)));
    }
}

#[cfg(test)]
mod tests;
