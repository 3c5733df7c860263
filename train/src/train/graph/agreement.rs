//! Comparison of replays with plain micro-steps on the same samples.

use std::fmt;
use std::mem::take;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::ops::PadMode;
use burn::tensor::{DType, FloatDType, Tensor};

use super::micro_step::MicroStep;
use super::{CHECKS, GraphStatus, Graphs, Newest};
use crate::micro_batch::MicroBatch;
use crate::mixed::{LossScale, ModulePath, track_path};
use crate::shape::with_autodiff_of;
use crate::train::accumulation::MicroBatchGradients;
use crate::train::buffers::Buffers;
use crate::train::outcome::StepFailure;
use crate::train::update::watched_read;

/// Rounding errors by which sums of equal terms may differ.
const ROUNDINGS: f32 = 16.0;
/// Rounding errors, of the largest value of all tensors, by which each tensor may differ. Some gradients are zero but for
/// rounding: those of a bias before a batch norm, or of the keys of attention.
const NOISE: f32 = 4.0;
/// Factor by which a replay may differ more than two plain micro-steps, whose kernels add in random order, or than two
/// replays of which one has [parameters with rounding errors](with_rounding_errors).
const SPREAD: f32 = 4.0;
/// Relative difference that rounding errors of parameters never explain.
const MAX_ROUNDING: f32 = 0.5;
/// Factor by which two replays may differ less than two plain micro-steps.
const FROZEN: f32 = 8.0;
/// Relative difference of two plain micro-steps beyond that of sums in TF32 that are added in another order.
const RANDOM: f32 = 4.0 / 1024.0;

/// Differences of the loss, or of one tensor of the model: the largest of all elements.
#[derive(Clone, Debug)]
struct Difference {
    values: Values,
    /// Parameter or statistic as a record spells it; empty for the loss.
    path: String,
    /// Largest absolute value of a plain micro-step.
    largest: f32,
    /// Difference of two plain micro-steps.
    plain: f32,
    /// Difference of a plain micro-step and a replay.
    apart: f32,
    /// Difference of two replays.
    replays: f32,
    /// Difference of two replays of which one has parameters with rounding errors.
    rounded: f32,
    /// Relative rounding error of the type.
    epsilon: f32,
}

/// Values that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    Loss,
    Gradient,
    /// A running statistic after the micro-step.
    Statistic,
}

/// Micro-steps on the same samples from the same state.
struct Outcomes<'o, T> {
    pub(super) plain: [&'o Outcome<T>; 2],
    pub(super) replayed: [&'o Outcome<T>; 2],
    /// A replay with rounding errors in its parameters.
    pub(super) rounded: &'o Outcome<T>,
}

/// Differences of the loss, all gradients, and all running statistics.
#[derive(Debug)]
struct Comparison {
    differences: Vec<Difference>,
    /// Parameter with a gradient of some micro-steps, but not of all.
    incomplete: Option<String>,
}

/// Result of a comparison.
#[derive(Debug, PartialEq, Eq)]
enum Agreement {
    Yes,
    /// With the reason.
    No(String),
    /// The plain micro-steps are not finite.
    Unknown,
}

/// Absolute values on the device, [`COUNT`](Self::COUNT) of each tensor: itself and its differences.
///
/// Tensors are cut into rows of one length, so that all share few kernels: a reduction of each shape is compiled and tuned by
/// itself.
#[derive(Default)]
struct Pending {
    /// Rows whose largest values are not yet computed.
    rows: [Vec<Tensor<2>>; Self::COUNT],
    /// Number of these.
    open: usize,
    /// Largest values of the others, `[rows]` each.
    largest: [Vec<Tensor<1>>; Self::COUNT],
    tensors: Vec<Compared>,
    incomplete: Option<String>,
}

struct Compared {
    values: Values,
    path: String,
    dtype: DType,
    /// Rows in each of the lists.
    rows: usize,
}

/// Numbers in a row.
const ROW: usize = 4096;
/// Rows after which largest values are computed: 64 MiB for each list, or one large tensor.
const MOST_ROWS: usize = 4096;

impl Pending {
    const COUNT: usize = 5;

    fn push<const D: usize>(&mut self, values: Values, path: String, tensors: [Option<Tensor<D>>; 5]) {
        let [Some(plain), Some(other_plain), Some(replay), Some(other_replay), Some(rounded)] = tensors else {
            if tensors.iter().any(Option::is_some) {
                self.incomplete.get_or_insert(path);
            }
            return;
        };
        let (dtype, numbers) = (plain.dtype(), plain.shape().num_elements());
        let rows = numbers.div_ceil(ROW);
        self.tensors.push(Compared { values, path, dtype, rows });
        let [plain, other_plain, replay, other_replay, rounded] =
            [plain, other_plain, replay, other_replay, rounded].map(|it| it.cast(FloatDType::F32).reshape([numbers]));
        let pairs = [
            (plain.clone(), None),
            (plain.clone(), Some(other_plain)),
            (plain, Some(replay.clone())),
            (replay.clone(), Some(other_replay)),
            (replay, Some(rounded)),
        ];
        let is_full = self.open + rows >= MOST_ROWS;
        self.open = if is_full { 0 } else { self.open + rows };
        for (list, (one, other)) in pairs.into_iter().enumerate() {
            let difference = other.map_or_else(|| one.clone(), |other| one.clone() - other);
            let rest = rows * ROW - numbers;
            let whole = if rest == 0 { difference } else { difference.pad([(0, rest)], PadMode::Constant(0.0)) };
            self.rows[list].push(whole.reshape([rows, ROW]));
            // One difference of a large tensor is in memory at a time.
            if is_full {
                self.close(list);
            }
        }
    }

    fn close(&mut self, list: usize) {
        let rows = take(&mut self.rows[list]);
        if rows.iter().any(|rows| rows.dims()[0] > 0) {
            self.largest[list].push(Tensor::cat(rows, 0).abs().max_dim(1).squeeze_dim(1));
        }
    }

    /// Waits for the device.
    fn read(mut self) -> Result<Comparison, StepFailure> {
        (0..Self::COUNT).for_each(|list| self.close(list));
        let Self { largest, tensors, incomplete, .. } = self;
        let all: Vec<_> = largest.into_iter().flatten().collect();
        let all = if all.is_empty() {
            Vec::new()
        } else {
            let all = Tensor::cat(all, 0);
            watched_read(|| all.try_into_vec_as::<f32>())?
        };
        let of_each = all.len() / Self::COUNT;
        let mut next = 0;
        let differences = tensors.into_iter().map(|Compared { values, path, dtype, rows }| {
            let begin = next;
            next += rows;
            let [largest, plain, apart, replays, rounded] =
                [0, 1, 2, 3, 4].map(|list| all[list * of_each..][begin..next].iter().copied().fold(0.0, larger));
            Difference { values, path, largest, plain, apart, replays, rounded, epsilon: epsilon(dtype) }
        });
        Ok(Comparison { differences: differences.collect(), incomplete })
    }
}

/// NaN if one of the numbers is.
fn larger(one: f32, other: f32) -> f32 {
    if other > one || other.is_nan() { other } else { one }
}

/// Visitor that compares gradients or running statistics.
struct Comparing<'g> {
    pending: Pending,
    values: Values,
    tensors: [&'g GradientsParams; 5],
    path: ModulePath,
}

impl ModuleVisitor for Comparing<'_> {
    track_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensors = self.tensors.map(|tensors| tensors.get::<D>(param.id));
        self.pending.push(self.values, self.path.path(), tensors);
    }
}

impl Comparison {
    /// Compares micro-steps. Waits for the device.
    pub(super) fn read<M: Module, T>(model: &M, outcomes: &Outcomes<'_, T>) -> Result<Self, StepFailure> {
        let Outcomes { plain: [first, second], replayed: [third, fourth], rounded } = *outcomes;
        let outcomes = [first, second, third, fourth, rounded];
        let mut pending = Pending::default();
        pending.push(Values::Loss, String::new(), outcomes.map(|outcome| outcome.result.loss.clone()));
        for (values, tensors) in [
            (Values::Gradient, outcomes.map(|outcome| &outcome.result.gradients)),
            (Values::Statistic, outcomes.map(|outcome| &outcome.statistics.0)),
        ] {
            let mut comparing = Comparing { pending, values, tensors, path: ModulePath::default() };
            model.visit(&mut comparing);
            pending = comparing.pending;
        }
        pending.read()
    }

    pub(super) fn agreement(&self) -> Agreement {
        if let Some(path) = &self.incomplete {
            return Agreement::No(format!(
                "some micro-steps on the same samples have a gradient of `{path}`, and others have none"
            ));
        }
        if self.differences.iter().any(|difference| !(difference.largest.is_finite() && difference.plain.is_finite())) {
            return Agreement::Unknown;
        }
        let mut reasons = self.differences.iter().filter_map(|difference| difference.reason(self.noise(difference)));
        match (reasons.next(), reasons.count()) {
            (None, _) => Agreement::Yes,
            (Some(reason), 0) => Agreement::No(reason),
            (Some(reason), others) => Agreement::No(format!("{reason} ({others} further values differ, too)")),
        }
    }

    /// Difference that rounding explains in a tensor whose own values are small.
    fn noise(&self, of: &Difference) -> f32 {
        let same = self.differences.iter().filter(|other| (other.values, other.epsilon) == (of.values, of.epsilon));
        NOISE * of.epsilon * same.map(|other| other.largest).fold(0.0, f32::max)
    }
}

impl Difference {
    /// The reason against replays, if there is one.
    fn reason(&self, noise: f32) -> Option<String> {
        let rounded = (SPREAD * self.rounded).min(MAX_ROUNDING * self.largest);
        let rounding = noise.max(ROUNDINGS * self.epsilon * self.largest).max(rounded);
        let Self { largest, plain, apart, replays, rounded, .. } = *self;
        if plain > rounding.max(RANDOM * largest) && replays * FROZEN < plain {
            return Some(format!(
                "{self} differs by {plain:.1e} between micro-steps on the same samples and by {replays:.1e} between replays, at a \
                 largest value of {largest:.1e}: random operations such as dropout would repeat their numbers"
            ));
        }
        // True for NaN, too.
        let agrees = apart <= rounding.max(SPREAD * plain);
        (!agrees).then(|| {
            format!(
                "{self} differs by {apart:.1e} between replays and micro-steps on the same samples, at a largest value of \
                 {largest:.1e}; by {plain:.1e} between micro-steps, and by {rounded:.1e} with other rounding of parameters: the \
                 model may depend on values of the host that change"
            )
        })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.values {
            Values::Loss => f.write_str("the loss"),
            Values::Gradient => write!(f, "the gradient of `{}`", self.path),
            Values::Statistic => write!(f, "the running statistic `{}`", self.path),
        }
    }
}

/// Relative rounding error of a float type.
///
/// Factors of f32 products may be rounded to 11 bits (TF32), and sums average such errors. Autotune may choose other kernels
/// for a recording than for plain micro-steps, which fuse other operations. An LSTM on an H100 differed by 5.4e-5.
fn epsilon(dtype: DType) -> f32 {
    match dtype {
        DType::BF16 => 2.0_f32.powi(-8),
        DType::F16 => 2.0_f32.powi(-11),
        DType::F32 => 2.0_f32.powi(-16),
        _ => f32::EPSILON,
    }
}

/// Result of a micro-step, and the running statistics after it.
pub(super) struct Outcome<T> {
    pub(super) result: MicroBatchGradients<T>,
    /// Empty for a model without them.
    pub(super) statistics: Buffers,
}

impl<M: Module, T: 'static> Graphs<M, T> {
    /// Compares two replays with two plain micro-steps from the same state. Returns the result of the first plain one, and
    /// leaves its running statistics in the model. Refuses replays that differ by more than rounding.
    pub(super) fn compare<B: MicroBatch>(
        &mut self,
        model: &M,
        micro: &B,
        factors: (f64, &LossScale),
        plain: &dyn Fn(B) -> Result<MicroBatchGradients<T>, StepFailure>,
    ) -> Result<MicroBatchGradients<T>, StepFailure> {
        let statistics = self.recorded.as_ref().and_then(MicroStep::statistics);
        let before = statistics.map(|kept| kept.current(model)).unwrap_or_default();
        let device = self.device.clone();
        let plain = || {
            before.restore(model);
            // Fusion combines a micro-step with pending operations, and the next one with others, in kernels that round
            // otherwise. A failure shows when values are read.
            device.sync().ok();
            let result = plain(micro.clone())?;
            let statistics = before.current(model);
            Ok::<_, StepFailure>(Outcome { result, statistics })
        };
        let [first, second] = [plain()?, plain()?];
        before.restore(model);
        let mut replayed = || -> Result<_, String> {
            let mut replay = |model| self.replay_anew(model, micro.clone(), factors);
            Ok(([replay(model)?, replay(model)?], replay(&with_rounding_errors(model))?))
        };
        let agreement = match replayed() {
            Ok((replayed, rounded)) => {
                let outcomes = Outcomes { plain: [&first, &second], replayed: replayed.each_ref(), rounded: &rounded };
                Comparison::read(model, &outcomes)?.agreement()
            }
            Err(because) => Agreement::No(because),
        };
        first.statistics.restore(model);
        self.newest = Newest::Model;
        match agreement {
            // Gradients that are not finite, in a step that will be skipped.
            Agreement::Unknown => {}
            Agreement::Yes => {
                self.is_due = false;
                self.unchecked = 0;
                self.checked += 1;
                if self.checked == CHECKS {
                    tracing::info!(samples = self.size, "CUDA graphs: replays agree with plain steps");
                    self.status = GraphStatus::Replaying;
                    // Plain micro-steps of this size need their memory in comparisons only.
                    self.device.memory_cleanup();
                }
            }
            Agreement::No(because) => self.refuse(because),
        }
        Ok(first.result)
    }

    /// Replays from the state of the model.
    fn replay_anew<B: MicroBatch>(
        &mut self,
        model: &M,
        micro: B,
        factors: (f64, &LossScale),
    ) -> Result<Outcome<T>, String> {
        self.newest = Newest::Model;
        let result = self.replay(model, micro, factors)?;
        let statistics = self.recorded.as_ref().and_then(MicroStep::statistics);
        let copied = |kept: &Buffers| kept.copied(model);
        Ok(Outcome { result, statistics: statistics.map(copied).unwrap_or_default() })
    }
}

/// Factor that turns parameters into angles, of which neighbours have unrelated sines.
const SCATTER: f32 = 4096.0;

/// A copy of a model whose trained parameters have relative errors of up to one unit in their last place. The errors are
/// the same at each call. Running statistics stay those of `model`.
///
/// A replay may run other kernels than a plain micro-step: fusion combines other operations, and autotune chooses by the
/// layout of parameters. Each kernel is right to rounding, and deep models amplify that: a unit whose input is almost zero
/// passes no gradient in one of two micro-steps.
fn with_rounding_errors<M: Module>(model: &M) -> M {
    model.clone().map(&mut Rounding)
}

struct Rounding;

impl ModuleMapper for Rounding {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.is_require_grad() {
            return param;
        }
        param.map(|tensor| {
            let (device, dtype) = (tensor.device(), tensor.dtype());
            let value = tensor.without_autodiff().cast(FloatDType::F32);
            let errors = value.clone().mul_scalar(SCATTER).sin().mul_scalar(last_place(dtype));
            let value = (value.clone() + value * errors).cast(dtype);
            with_autodiff_of(value, &device).require_grad()
        })
    }
}

/// Relative size of the last place of factors in matrix products. Those of f32 are rounded to TF32.
fn last_place(dtype: DType) -> f32 {
    match dtype {
        DType::BF16 => 2.0_f32.powi(-7),
        _ => 2.0_f32.powi(-10),
    }
}

#[cfg(test)]
mod tests;
