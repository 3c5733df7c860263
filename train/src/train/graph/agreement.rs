//! Comparison of replays with plain micro-steps on the same samples.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor};

use super::check::Outcome;
use crate::train::step_failure::StepFailure;
use crate::train::update::watched_read;
use crate::visit::visit_floats;

/// Rounding errors by which sums of equal terms may differ.
const ROUNDINGS: f32 = 16.0;
/// Rounding errors, of the largest value of all tensors, by which each tensor may differ. Some gradients are zero but for
/// rounding: those of a bias before a batch norm, or of the keys of attention.
const NOISE: f32 = 4.0;
/// Factor by which a replay may differ more than two plain micro-steps, whose kernels add in random order.
const SPREAD: f32 = 4.0;
/// Factor by which two replays may differ less than two plain micro-steps.
const FROZEN: f32 = 8.0;
/// Relative difference of two plain micro-steps beyond that of sums in TF32 that are added in another order.
const RANDOM: f32 = 4.0 / 1024.0;

/// Differences of the loss, or of one tensor of the model: the largest of all elements.
#[derive(Clone, Copy, Debug)]
struct Difference {
    values: Values,
    /// Largest absolute value of a plain micro-step.
    largest: f32,
    /// Between two plain micro-steps.
    plain: f32,
    /// Between a plain micro-step and a replay.
    apart: f32,
    /// Between two replays.
    replays: f32,
    /// Relative rounding error of the type.
    epsilon: f32,
}

/// Values that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    Loss,
    Gradients,
    /// A running statistic after the micro-step.
    Statistics,
}

/// Differences of the loss, all gradients, and all running statistics.
#[derive(Debug)]
pub(super) struct Comparison {
    differences: Vec<Difference>,
    /// True if some micro-steps have a gradient that others have not.
    is_incomplete: bool,
}

/// Result of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    Yes,
    /// With the reason.
    No(String),
    /// The plain micro-steps are not finite.
    Unknown,
}

/// Device values of the differences, four for each, with what they are of.
#[derive(Default)]
struct Pending {
    values: Vec<Tensor<1>>,
    kinds: Vec<(Values, DType)>,
    is_incomplete: bool,
}

impl Pending {
    fn push<const D: usize>(&mut self, values: Values, [plain, other_plain, replay, other_replay]: [Tensor<D>; 4]) {
        self.kinds.push((values, plain.dtype()));
        let [plain, other_plain, replay, other_replay] =
            [plain, other_plain, replay, other_replay].map(|tensor| tensor.cast(FloatDType::F32));
        let largest = |tensor: Tensor<D>| tensor.abs().max();
        self.values.extend([
            largest(plain.clone()),
            largest(plain.clone() - other_plain),
            largest(plain - replay.clone()),
            largest(replay - other_replay),
        ]);
    }

    fn push_all<const D: usize>(&mut self, values: Values, tensors: [Option<Tensor<D>>; 4]) {
        match tensors {
            [Some(a), Some(b), Some(c), Some(d)] => self.push(values, [a, b, c, d]),
            [None, None, None, None] => {}
            _ => self.is_incomplete = true,
        }
    }

    fn with_parameters<M: Module>(self, model: &M, values: Values, tensors: [&GradientsParams; 4]) -> Self {
        type Pushing<'v> = (Pending, Values, [&'v GradientsParams; 4]);
        let state = (self, values, tensors);
        let (pending, ..) = visit_floats!(model, (pending, values, tensors) = state, Pushing<'v>, |param| {
            pending.push_all(*values, tensors.map(|tensors| tensors.get::<D>(param.id)));
        });
        pending
    }
}

impl Comparison {
    /// Compares the outcomes of two plain micro-steps with those of two replays. Waits for the device.
    pub(super) fn read<M: Module, T>(model: &M, outcomes: [&Outcome<T>; 4]) -> Result<Self, StepFailure> {
        let mut pending = Pending::default();
        pending.push_all(Values::Loss, outcomes.map(|outcome| outcome.result.loss.clone()));
        let pending = pending
            .with_parameters(model, Values::Gradients, outcomes.map(|outcome| &outcome.result.gradients))
            .with_parameters(model, Values::Statistics, outcomes.map(|outcome| &outcome.statistics.0));
        let values = Tensor::cat(pending.values, 0);
        let values = watched_read(|| values.try_into_vec_as::<f32>())?;
        let differences = values.chunks_exact(4).zip(pending.kinds).map(|(values, (kind, dtype))| Difference {
            values: kind,
            largest: values[0],
            plain: values[1],
            apart: values[2],
            replays: values[3],
            epsilon: epsilon(dtype),
        });
        Ok(Self { differences: differences.collect(), is_incomplete: pending.is_incomplete })
    }

    pub(super) fn agreement(&self) -> Agreement {
        if self.is_incomplete {
            return Agreement::No("micro-steps on the same samples have gradients of other parameters".to_owned());
        }
        if self.differences.iter().any(|difference| !(difference.largest.is_finite() && difference.plain.is_finite())) {
            return Agreement::Unknown;
        }
        let reason = self.differences.iter().find_map(|difference| difference.reason(self.noise(difference)));
        reason.map_or(Agreement::Yes, Agreement::No)
    }

    /// Difference that rounding explains in a tensor whose own values are small.
    fn noise(&self, of: &Difference) -> f32 {
        let same = self.differences.iter().filter(|other| (other.values, other.epsilon) == (of.values, of.epsilon));
        NOISE * of.epsilon * same.map(|other| other.largest).fold(0.0, f32::max)
    }
}

impl Difference {
    /// The reason against replays, if there is one.
    fn reason(self, noise: f32) -> Option<String> {
        let rounding = noise.max(ROUNDINGS * self.epsilon * self.largest);
        if self.plain > rounding.max(RANDOM * self.largest) && self.replays * FROZEN < self.plain {
            return Some(format!(
                "micro-steps on the same samples differ by {:.1e} of the largest value, and replays by {:.1e}: random \
                 operations such as dropout would repeat their numbers",
                self.plain / self.largest,
                self.replays / self.largest
            ));
        }
        // True for NaN, too.
        let agrees = self.apart <= rounding.max(SPREAD * self.plain);
        (!agrees).then(|| {
            let [apart, plain] = [self.apart / self.largest, self.plain / self.largest];
            match self.values {
                Values::Loss | Values::Gradients => format!(
                    "replays differ from plain micro-steps on the same samples by {apart:.1e} of the largest value, and plain \
                     ones by {plain:.1e}: the loss depends on values of the host that change"
                ),
                Values::Statistics => format!(
                    "running statistics after replays differ from those after plain micro-steps by {apart:.1e} of the largest \
                     value, and those after two plain ones by {plain:.1e}"
                ),
            }
        })
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

#[cfg(test)]
mod tests {
    use burn::nn::LinearConfig;
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, Tensor};

    use super::{Agreement, Comparison, DType, Difference, Outcome, Values};
    use crate::train::accumulation::MicroBatchGradients;
    use crate::train::buffers::Buffers;

    fn agreement(largest: f32, plain: f32, apart: f32, replays: f32) -> Agreement {
        let epsilon = super::epsilon(DType::F32);
        let difference = Difference { values: Values::Gradients, largest, plain, apart, replays, epsilon };
        Comparison { differences: vec![difference], is_incomplete: false }.agreement()
    }

    #[test]
    fn equal_bits_and_rounding_errors_agree() {
        assert_eq!(agreement(1.0, 0.0, 0.0, 0.0), Agreement::Yes);
        assert_eq!(agreement(1.0, 0.0, 1e-6, 0.0), Agreement::Yes);
        // Kernels with other rounding in recordings only.
        assert_eq!(agreement(1.0, 0.0, 5.4e-5, 0.0), Agreement::Yes);
        // Kernels that add in another order, in both, or in plain micro-steps only.
        assert_eq!(agreement(1.0, 1e-3, 1e-3, 0.0), Agreement::Yes);
        assert_eq!(agreement(1.0, 1e-4, 2e-4, 1e-4), Agreement::Yes);
        assert_eq!(agreement(0.0, 0.0, 0.0, 0.0), Agreement::Yes);
    }

    #[test]
    fn other_values_do_not_agree() {
        for apart in [1e-3, f32::NAN, f32::INFINITY] {
            let Agreement::No(because) = agreement(1.0, 1e-5, apart, 1e-5) else { panic!("{apart} is too much") };
            assert!(because.starts_with("replays differ from plain micro-steps"), "{because}");
        }
    }

    #[test]
    fn random_numbers_that_repeat_are_found() {
        let Agreement::No(because) = agreement(1.0, 0.3, 0.3, 0.0) else { panic!("dropout") };
        assert!(because.contains("random operations such as dropout"), "{because}");
    }

    #[test]
    fn steps_that_are_not_finite_decide_nothing() {
        assert_eq!(agreement(f32::NAN, f32::NAN, f32::NAN, 0.0), Agreement::Unknown);
        assert_eq!(agreement(f32::INFINITY, f32::NAN, 1.0, 0.0), Agreement::Unknown);
    }

    #[test]
    fn gradients_that_are_rounding_errors_agree() {
        let agreement = |small: Values, apart: f32| {
            let epsilon = super::epsilon(DType::F32);
            let large =
                Difference { values: Values::Gradients, largest: 1.0, plain: 0.0, apart: 0.0, replays: 0.0, epsilon };
            let small = Difference { values: small, largest: 1e-6, apart, ..large };
            Comparison { differences: vec![large, small], is_incomplete: false }.agreement()
        };
        assert_eq!(agreement(Values::Gradients, 2e-6), Agreement::Yes);
        assert!(matches!(agreement(Values::Gradients, 1e-4), Agreement::No(_)));
        // Other values than gradients.
        assert!(matches!(agreement(Values::Loss, 2e-6), Agreement::No(_)));
    }

    #[test]
    fn gradients_and_statistics_are_compared() {
        let model = LinearConfig::new(2, 2).init(&Device::flex());
        let agreement = |weight: [Option<f32>; 2], bias: [f32; 2]| {
            let outcomes = [0, 1].map(|at| {
                let (mut gradients, mut statistics) = (GradientsParams::new(), Buffers::default());
                if let Some(value) = weight[at] {
                    gradients.register(model.weight.id, Tensor::<2>::full([2, 2], value, &Device::flex()));
                }
                let id = model.bias.as_ref().expect("a layer with a bias").id;
                statistics.0.register(id, Tensor::<1>::full([2], bias[at], &Device::flex()));
                let loss = Some(Tensor::ones([1], &Device::flex()));
                Outcome { result: MicroBatchGradients { gradients, loss, output: () }, statistics }
            });
            let [plain, replay] = &outcomes;
            Comparison::read(&model, [plain, plain, replay, replay]).ok().expect("values").agreement()
        };
        assert_eq!(agreement([Some(1.0), Some(1.0)], [0.5, 0.5]), Agreement::Yes);
        let reason = |agreement| match agreement {
            Agreement::No(because) => because,
            other => panic!("{other:?}"),
        };
        let other_statistics = reason(agreement([Some(1.0), Some(1.0)], [0.5, 0.45]));
        assert!(other_statistics.starts_with("running statistics after replays differ"), "{other_statistics}");
        let other_gradients = reason(agreement([Some(1.0), Some(0.9)], [0.5, 0.5]));
        assert!(other_gradients.starts_with("replays differ"), "{other_gradients}");
        let missing = reason(agreement([Some(1.0), None], [0.5, 0.5]));
        assert!(missing.contains("gradients of other parameters"), "{missing}");
        assert_eq!(agreement([Some(1.0), Some(1.0)], [f32::NAN, 0.5]), Agreement::Unknown);
    }
}
