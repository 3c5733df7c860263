//! The GPU that a start takes among several.

use crate::detect::UnusableGpu;

/// Result of planning for a GPU.
#[derive(Clone, Debug)]
pub enum Fit<T> {
    /// The plan fits.
    Whole(T),
    /// The plan fits in fp32, in place of a requested precision.
    OtherPrecision {
        /// The plan.
        plan: T,
        /// Why the GPU lacks the precision.
        because: String,
    },
    /// There is no plan: the memory is too small, or the reason is given.
    No {
        /// The reason, if it is not the memory.
        because: Option<String>,
    },
}

/// The GPU that a start takes.
#[derive(Clone, Debug)]
pub struct FirstFit<T> {
    /// Number of the GPU in CUDA's order.
    pub position: usize,
    /// The plan.
    pub plan: T,
    /// GPUs that were tried before and lack the precision.
    pub failed: Vec<UnusableGpu>,
}

impl<T> FirstFit<T> {
    /// Returns the first GPU on which the plan fits as requested, else the first on which it fits in another precision.
    ///
    /// `fits` are the GPUs in the order in which a start tries them: see
    /// [`Machine::preference`](crate::Machine::preference). It is consumed up to the returned GPU.
    pub fn new(fits: impl IntoIterator<Item = (usize, Fit<T>)>) -> Option<Self> {
        let mut failed = Vec::new();
        let mut second_choice = None;
        for (position, fit) in fits {
            match fit {
                Fit::Whole(plan) => return Some(Self { position, plan, failed }),
                Fit::OtherPrecision { plan, because } => {
                    second_choice = second_choice.or(Some((position, plan)));
                    failed.push(UnusableGpu { position, because });
                }
                Fit::No { because } => {
                    failed.extend(because.map(|because| UnusableGpu { position, because }));
                }
            }
        }
        second_choice.map(|(position, plan)| Self { position, plan, failed })
    }
}
