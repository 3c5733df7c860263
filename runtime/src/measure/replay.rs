//! Memory on GPUs that are not there, from what steps allocate on the CPU.

use std::collections::BTreeMap;

use burn::module::Module;
use gpu_tuned_core::measured::MeasuredOn;

use super::MeasureError;
use super::bench::Bench;

/// What steps would reserve on GPUs, each by its name; none yet.
#[expect(clippy::unnecessary_wraps, reason = "replaying can fail")]
pub(super) fn devices<M: Module, B: Clone>(
    _: &Bench<'_, '_, M, B>,
) -> Result<BTreeMap<String, MeasuredOn>, MeasureError> {
    Ok(BTreeMap::new())
}
