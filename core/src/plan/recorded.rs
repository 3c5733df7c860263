//! Memory of a micro-step that is recorded as a CUDA graph.

use super::baseline;
use super::estimate::MemoryEstimate;
use crate::device::DeviceFacts;
use crate::measured::{MeasuredMode, Mode};
use crate::workload::Workload;
use crate::{Bytes, Provenance};

/// Memory that CUDA graphs add in one mode.
pub(super) struct RecordedStep<'a> {
    /// Measurements with CUDA graphs on this device.
    measured: Option<&'a MeasuredMode>,
}

impl<'a> RecordedStep<'a> {
    pub(super) fn new(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Self {
        Self { measured: baseline::measured_here(device, workload, mode) }
    }

    /// Bytes that the memory pools reserved with CUDA graphs at this micro-batch, where that was measured.
    pub(super) fn reserved(&self, batch: u64, accumulates: bool) -> Option<Bytes> {
        let batch = self.measured?.batch.get(&batch)?;
        if accumulates { batch.reserved_accumulating_bytes } else { batch.reserved_bytes }
    }

    /// Adds a recorded step to an estimate without one, for which the memory pools were measured to reserve `pools`.
    ///
    /// Without a measurement at this size, the recorded step is another set of all that lives for one step. Two copies of the
    /// parameters and of their gradients come on top, the second one in comparisons. Steps that were measured without the
    /// second copy took 0.7 to 0.9 of that.
    pub(super) fn add_to(&self, estimate: &mut MemoryEstimate, pools: Option<Bytes>, accumulates: bool) {
        if let Some((recorded, pools)) = self.reserved(estimate.batch, accumulates).zip(pools) {
            estimate.cuda_graph = recorded - pools;
        } else {
            estimate.cuda_graph = estimate.transient() + (estimate.weights + estimate.gradients).times(2);
            estimate.provenance = estimate.provenance.max(Provenance::Estimated);
        }
    }
}
