//! Random cases of an operation by cuDNN, judged by their errors.

#![allow(clippy::neg_cmp_op_on_partial_ord, reason = "an error of NaN is wrong")]

use std::collections::BTreeMap;
use std::time::Instant;

use gpu_tuned_kernels::selection::cudnn_use;
use serde::Serialize;

use crate::products::{is_worse, worse};

/// Largest errors by tensor.
pub(crate) type Errors = BTreeMap<&'static str, f64>;

/// Cases of one operation in one precision.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Judged {
    cases: usize,
    /// Cases that the library computed, not Burn.
    pub(crate) by_library: usize,
    pub(crate) wrong: usize,
    errors: Errors,
    worst: f64,
    worst_case: String,
    seconds: f64,
}

impl Judged {
    /// Computes cases. `next` returns one as text, with its errors, which are at most `limit` if it is right.
    pub(crate) fn new(
        cases: usize,
        limit: f64,
        mut next: impl FnMut() -> anyhow::Result<(String, Errors)>,
    ) -> anyhow::Result<Self> {
        let begin = Instant::now();
        let mut judged = Self { cases, ..Self::default() };
        for _ in 0..cases {
            let launched = cudnn_use().calls;
            let (case, errors) = next()?;
            judged.by_library += usize::from(cudnn_use().calls > launched);
            let error = errors.values().copied().fold(0.0, worse);
            if !(error <= limit) {
                judged.wrong += 1;
            }
            if is_worse(error, judged.worst) {
                (judged.worst, judged.worst_case) = (error, case);
            }
            for (tensor, error) in errors {
                let largest = judged.errors.entry(tensor).or_default();
                *largest = worse(*largest, error);
            }
        }
        judged.seconds = begin.elapsed().as_secs_f64();
        Ok(judged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_beyond_the_limit_or_of_nan_is_wrong() {
        let mut errors = [0.5, 2.0, f64::NAN, 1.0].into_iter();
        let judged = Judged::new(4, 1.0, || {
            let error = errors.next().expect("four");
            Ok((format!("{error}"), Errors::from([("output", error), ("of_input", 0.0)])))
        });
        let judged = judged.expect("no case fails");
        assert_eq!((judged.cases, judged.wrong, judged.by_library), (4, 2, 0));
        assert!(judged.errors["output"].is_nan() && judged.worst.is_nan() && judged.worst_case == "NaN", "{judged:?}");
    }
}
