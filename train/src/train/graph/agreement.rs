//! Comparison of replays with plain micro-steps on the same samples.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor};

use super::Differentiated;
use crate::train::step_failure::StepFailure;
use crate::train::update::watched_read;
use crate::visit::visit_floats;

/// Rounding errors by which sums of equal terms may differ.
const ROUNDINGS: f32 = 16.0;
/// Factor by which a replay may differ more than two plain micro-steps, whose kernels add in random order.
const SPREAD: f32 = 4.0;
/// Factor by which two replays may differ less than two plain micro-steps.
const FROZEN: f32 = 8.0;
/// Relative difference of two plain micro-steps beyond that of sums in TF32 that are added in another order.
const RANDOM: f32 = 4.0 / 1024.0;

/// Differences of the loss, or of the gradient of a parameter: the largest of all elements.
#[derive(Clone, Copy, Debug)]
struct Difference {
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

/// Differences of the loss and of all gradients.
#[derive(Debug)]
pub(super) struct Comparison(Vec<Difference>);

/// Result of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    Yes,
    /// With the reason.
    No(String),
    /// The plain micro-steps are not finite.
    Unknown,
}

/// Device values of the differences, four for each, and the types.
struct Pending<'r> {
    results: [&'r GradientsParams; 4],
    values: Vec<Tensor<1>>,
    types: Vec<DType>,
}

impl Pending<'_> {
    fn push<const D: usize>(&mut self, [plain, other_plain, replay, other_replay]: [Tensor<D>; 4]) {
        self.types.push(plain.dtype());
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
}

impl Comparison {
    /// Compares the results of two plain micro-steps with those of two replays. Waits for the device.
    pub(super) fn read<M: Module>(
        model: &M,
        plain: [&Differentiated; 2],
        replays: [&Differentiated; 2],
    ) -> Result<Self, StepFailure> {
        let all = [plain[0], plain[1], replays[0], replays[1]];
        let results = all.map(|result| &result.gradients);
        let mut pending = Pending { results, values: Vec::new(), types: Vec::new() };
        pending.push(all.map(|result| result.loss.clone()));
        let pending = visit_floats!(model, pending = pending, Pending<'v>, |param| {
            if let [Some(a), Some(b), Some(c), Some(d)] = pending.results.map(|result| result.get::<D>(param.id)) {
                pending.push([a, b, c, d]);
            }
        });
        let values = Tensor::cat(pending.values, 0);
        let values = watched_read(|| values.try_into_vec_as::<f32>())?;
        let differences = values.chunks_exact(4).zip(pending.types).map(|(values, dtype)| Difference {
            largest: values[0],
            plain: values[1],
            apart: values[2],
            replays: values[3],
            epsilon: epsilon(dtype),
        });
        Ok(Self(differences.collect()))
    }

    pub(super) fn agreement(&self) -> Agreement {
        if self.0.iter().any(|difference| !(difference.largest.is_finite() && difference.plain.is_finite())) {
            return Agreement::Unknown;
        }
        let reason = self.0.iter().find_map(|difference| difference.reason());
        reason.map_or(Agreement::Yes, Agreement::No)
    }
}

impl Difference {
    /// The reason against replays, if there is one.
    fn reason(self) -> Option<String> {
        let rounding = ROUNDINGS * self.epsilon * self.largest;
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
            format!(
                "replays differ from plain micro-steps on the same samples by {:.1e} of the largest value, and plain ones by \
                 {:.1e}: the loss depends on values of the host that change",
                self.apart / self.largest,
                self.plain / self.largest
            )
        })
    }
}

/// Relative rounding error of a float type.
fn epsilon(dtype: DType) -> f32 {
    match dtype {
        DType::BF16 => 2.0_f32.powi(-8),
        DType::F16 => 2.0_f32.powi(-11),
        _ => f32::EPSILON,
    }
}

#[cfg(test)]
mod tests {
    use super::{Agreement, Comparison, Difference};

    fn agreement(largest: f32, plain: f32, apart: f32, replays: f32) -> Agreement {
        Comparison(vec![Difference { largest, plain, apart, replays, epsilon: f32::EPSILON }]).agreement()
    }

    #[test]
    fn equal_bits_and_rounding_errors_agree() {
        assert_eq!(agreement(1.0, 0.0, 0.0, 0.0), Agreement::Yes);
        assert_eq!(agreement(1.0, 0.0, 1e-6, 0.0), Agreement::Yes);
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
}
