//! Counts of gradient values, parameter by parameter.

#[cfg(test)]
mod tests;

use std::fmt;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Bool, FloatDType, Int, IntDType, Tensor, TensorReadError};
use serde::{Deserialize, Serialize};

use super::outcome::StepFailure;
use super::update::watched_read;
use crate::mixed::{ModulePath, track_path};

/// Counts of the gradients of a model, displayed as a table with a line a parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GradientHealth {
    /// The parameters that have a gradient, in the order of the model.
    pub layers: Vec<LayerHealth>,
    /// Paths of the parameters that are trained and have no gradient at all: the loss does not depend on them.
    pub without: Vec<String>,
}

/// Counts of the gradient of a parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LayerHealth {
    /// The parameter as a module's record spells it, such as `layers.0.linear.weight`.
    pub path: String,
    /// Values in all.
    pub values: u64,
    /// NaN values.
    pub nan: u64,
    /// Infinite values, of either sign.
    pub infinite: u64,
    /// Zeros, of either sign.
    pub zero: u64,
}

impl GradientHealth {
    /// Returns true if all gradients are finite.
    pub fn is_finite(&self) -> bool {
        self.unhealthy().next().is_none()
    }

    /// The parameters whose gradient is not finite.
    pub fn unhealthy(&self) -> impl Iterator<Item = &LayerHealth> {
        self.layers.iter().filter(|layer| layer.nan + layer.infinite > 0)
    }

    /// The counts of all parameters together; their path is empty.
    pub fn total(&self) -> LayerHealth {
        self.layers.iter().fold(LayerHealth::default(), |sum, layer| LayerHealth {
            path: sum.path,
            values: sum.values + layer.values,
            nan: sum.nan + layer.nan,
            infinite: sum.infinite + layer.infinite,
            zero: sum.zero + layer.zero,
        })
    }
}

/// A line for each parameter, then those without a gradient.
impl fmt::Display for GradientHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.layers.iter().map(|layer| layer.path.chars().count()).max().unwrap_or(0).max(9);
        write!(f, "{:width$} {:>12} {:>12} {:>12} {:>12}", "parameter", "values", "NaN", "Inf", "zero")?;
        for LayerHealth { path, values, nan, infinite, zero } in &self.layers {
            write!(f, "\n{path:width$} {values:>12} {nan:>12} {infinite:>12} {zero:>12}")?;
        }
        if !self.without.is_empty() {
            write!(f, "\nwithout a gradient: {}", self.without.join(", "))?;
        }
        Ok(())
    }
}

/// Counts what the gradients of a model are made of: values that are not a number, infinite, or zero, for each parameter.
///
/// The device counts, and the host waits for it once, whatever the number of parameters: call it in some steps, not in
/// all. Counts are exact for parameters of fewer than 2^31 values. Zeros are of interest where gradients are in 16 bits,
/// in which small values vanish, and for units that no longer learn.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::nn::LinearConfig;
/// use burn::optim::GradientsParams;
/// use burn::tensor::{Device, Tensor};
/// use gpu_tuned::train::gradient_health;
///
/// let device = Device::flex().autodiff();
/// let model = LinearConfig::new(2, 1).init(&device);
/// let loss = model.forward(Tensor::<2>::from_floats([[1.0, f32::INFINITY]], &device)).sum();
/// let gradients = GradientsParams::from_grads(loss.backward(), &model);
/// let health = gradient_health(&gradients, &model)?;
/// assert!(!health.is_finite());
/// assert_eq!((health.layers[0].path.as_str(), health.layers[0].infinite), ("weight", 1));
/// println!("{health}");
/// # Ok::<(), burn::tensor::TensorReadError>(())
/// ```
///
/// # Errors
///
/// If the counts cannot be read, above all because the gradients could not be computed.
pub fn gradient_health<M: Module>(gradients: &GradientsParams, model: &M) -> Result<GradientHealth, TensorReadError> {
    Counts::new(gradients, model).read()
}

/// Counts that are on the device.
pub(super) struct Counts {
    gradients: Vec<Counted>,
    without: Vec<String>,
}

/// Pending counts of one gradient: NaN, infinite and zero, in i32 and of shape `[3]`.
struct Counted {
    path: String,
    values: u64,
    counts: Tensor<1, Int>,
}

impl Counts {
    /// Counts; nothing is read.
    pub(super) fn new<M: Module>(gradients: &GradientsParams, model: &M) -> Self {
        let counts = Self { gradients: Vec::new(), without: Vec::new() };
        let mut counting = Counting { gradients, counts, path: ModulePath::default() };
        model.visit(&mut counting);
        counting.counts
    }

    fn read(self) -> Result<GradientHealth, TensorReadError> {
        let Self { gradients, without } = self;
        let Some(first) = gradients.first() else { return Ok(GradientHealth { layers: Vec::new(), without }) };
        let device = first.counts.device();
        let counts = gradients.iter().map(|counted| counted.counts.clone().to_device(&device)).collect();
        let counts = Tensor::cat(counts, 0).try_into_vec_as::<i64>()?;
        let layers = gradients.into_iter().zip(counts.chunks_exact(3));
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        let layers = layers.map(|(Counted { path, values, .. }, counts)| LayerHealth {
            path,
            values,
            nan: count(counts[0]),
            infinite: count(counts[1]),
            zero: count(counts[2]),
        });
        Ok(GradientHealth { layers: layers.collect(), without })
    }

    /// Reads them within a step.
    pub(super) fn watched(self) -> Result<GradientHealth, StepFailure> {
        watched_read(|| self.read())
    }
}

struct Counting<'g> {
    gradients: &'g GradientsParams,
    counts: Counts,
    path: ModulePath,
}

impl ModuleVisitor for Counting<'_> {
    track_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = self.path.path();
        match self.gradients.get::<D>(param.id) {
            Some(gradient) => {
                let values = gradient.shape().num_elements() as u64;
                self.counts.gradients.push(Counted { path, values, counts: counted(gradient) });
            }
            None if param.is_require_grad() => self.counts.without.push(path),
            None => {}
        }
    }
}

fn counted<const D: usize>(gradient: Tensor<D>) -> Tensor<1, Int> {
    let gradient = gradient.cast(FloatDType::F32);
    let count = |found: Tensor<D, Bool>| found.int().cast(IntDType::I32).sum();
    let counts = [gradient.clone().is_nan(), gradient.clone().is_inf(), gradient.equal_elem(0.0)];
    Tensor::cat(counts.map(count).into(), 0)
}
