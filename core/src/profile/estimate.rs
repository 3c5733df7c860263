//! Estimates of figures that neither the driver nor a profile reports.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::Bytes;
use crate::device::{ComputeCapability, ProductLine};

/// Largest ratio of a rate to its estimate, in either direction. Known GPUs are within a factor of 2.5; more or less than this
/// is a placeholder of a driver, or a typing error.
pub(super) const PLAUSIBLE: f64 = 8.0;

/// Largest ratio of the memory of a GPU to that of its class, in either direction. Boards are modified to two or three times
/// the memory of the product.
pub(super) const PLAUSIBLE_MEMORY: f64 = 4.0;

/// Compute capability of the estimates for a GPU whose driver does not report one: the commonest.
const COMMONEST: ComputeCapability = ComputeCapability::new(8, 6);

/// Figures of a GPU with this compute capability, product line and memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    /// Largest SM count of such GPUs.
    pub sm_count: u32,
    /// Peak fp32 rate, 10^12 operations per second.
    pub fp32_tflops: f64,
    /// Peak memory bandwidth, GB/s.
    pub bandwidth_gb_s: f64,
    /// Boost clock in MHz.
    pub clock_mhz: f64,
    /// Smallest SM count of the product lines; below `sm_count` for an unrecognised one.
    least_sm_count: f64,
    /// Smallest and largest memory of such GPUs, GiB.
    memory_gib: [f64; 2],
    is_integrated: bool,
}

impl Estimate {
    /// The estimate for a product line, or the middle of the lines of the compute capability.
    pub(super) fn new(capability: ComputeCapability, line: Option<ProductLine>, memory: Bytes) -> Self {
        let classes = Class::find(capability, line);
        let gib = memory.0 as f64 / f64::from(1 << 30);
        let middle = |figure: fn(&Class, f64) -> f64| {
            let sum: f64 = classes.iter().map(|class| figure(class, gib).ln()).sum();
            (sum / classes.len() as f64).exp()
        };
        let sm_counts = || classes.iter().map(|class| class.at(class.sm_count, gib));
        let largest = sm_counts().fold(0.0, f64::max);
        // A new generation may have any memory.
        let is_listed = classes.iter().any(|class| class.compute_capability.major == capability.major);
        let memories = || classes.iter().copied().chain(all_classes().iter().filter(|_| !is_listed));
        Self {
            sm_count: largest.ceil() as u32,
            fp32_tflops: middle(|class, gib| class.at(class.fp32_tflops, gib)),
            bandwidth_gb_s: middle(|class, gib| class.at(class.bandwidth_gb_s, gib)),
            clock_mhz: middle(|class, _| class.clock_mhz),
            is_integrated: line == Some(ProductLine::Integrated),
            least_sm_count: sm_counts().fold(largest, f64::min),
            memory_gib: [
                memories().map(|class| class.memory_gib[0]).fold(f64::INFINITY, f64::min),
                memories().map(|class| class.memory_gib[1]).fold(0.0, f64::max),
            ],
        }
    }

    /// Smallest and largest plausible SM count.
    pub(super) fn sm_counts(&self) -> [f64; 2] {
        [self.least_sm_count / PLAUSIBLE, f64::from(self.sm_count) * PLAUSIBLE]
    }

    /// Smallest and largest plausible memory in MiB. A GPU that shares the host's memory may have that of a virtual machine.
    pub(super) fn memory_mib(&self) -> [f64; 2] {
        const SMALLEST_SHARED_MIB: f64 = 512.0;
        let [smallest, largest] = self.memory_gib;
        let smallest = if self.is_integrated { SMALLEST_SHARED_MIB } else { smallest * 1024.0 / PLAUSIBLE_MEMORY };
        [smallest, largest * 1024.0 * PLAUSIBLE_MEMORY]
    }
}

/// Returns a reported figure, unless it is too far from its estimate to be one of a GPU.
pub(super) fn plausible(reported: Option<f64>, estimate: f64) -> Option<f64> {
    reported.filter(|reported| (1.0 / PLAUSIBLE..=PLAUSIBLE).contains(&(reported / estimate)))
}

/// Figures of GPUs of one compute capability and product line, each at the smallest and the largest memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    compute_capability: ComputeCapability,
    line: ProductLine,
    memory_gib: [f64; 2],
    sm_count: [f64; 2],
    fp32_tflops: [f64; 2],
    bandwidth_gb_s: [f64; 2],
    clock_mhz: f64,
}

impl Class {
    /// The class of the capability and the line; all classes of the capability without a line or for an unlisted one. An
    /// unlisted capability has the classes of the one before it.
    fn find(capability: ComputeCapability, line: Option<ProductLine>) -> Vec<&'static Self> {
        let capability = if capability.major == 0 { COMMONEST } else { capability };
        // Of integrated GPUs the line decides first: their memory is the host's.
        let is_integrated = |line| line == Some(ProductLine::Integrated);
        let is_kind = |class: &&Self| is_integrated(Some(class.line)) == is_integrated(line);
        let distance = |class: &Self| {
            let is_newer = class.compute_capability > capability;
            (is_newer, class.compute_capability.distance(capability))
        };
        let least = all_classes().iter().filter(is_kind).map(distance).min();
        let near: Vec<_> =
            all_classes().iter().filter(is_kind).filter(|class| Some(distance(class)) == least).collect();
        match near.iter().find(|class| Some(class.line) == line) {
            Some(class) => vec![class],
            None => near,
        }
    }

    /// Figure at this memory: a power of it through the two known points. Where both points are one, it is constant.
    fn at(&self, [low, high]: [f64; 2], gib: f64) -> f64 {
        let [smallest, largest] = self.memory_gib;
        if smallest >= largest {
            return low;
        }
        // Half the smallest memory and twice the largest are as far as a class is extended.
        let gib = gib.clamp(smallest / 2.0, largest * 2.0);
        let exponent = (high / low).ln() / (largest / smallest).ln();
        low * (gib / smallest).powf(exponent)
    }
}

fn all_classes() -> &'static [Class] {
    #[derive(Deserialize)]
    struct File {
        class: Vec<Class>,
    }
    static CLASSES: OnceLock<Vec<Class>> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let file: File = toml::from_str(include_str!("estimates.toml")).expect("BUG: estimates.toml is damaged");
        file.class
    })
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
