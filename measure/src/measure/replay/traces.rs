//! Measurements for a lock, simulated from recorded steps.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::measured::{MOST_MICRO_BATCHES, MeasuredMode, MeasurementMethod, micro_batches};
use gpu_tuned_core::{Bytes, Precision};

use super::replayed::{Lowered, Trace};
use crate::measure::bench::{ACCUMULATING, Tried};
use crate::measure::{MeasureError, Subject};

/// Recorded steps of one micro-batch and of two that accumulate gradients, both without or both with checkpointing.
#[derive(Clone, Debug)]
pub struct Traces {
    /// Trace of one micro-batch.
    pub single: Trace,
    /// Of two.
    pub accumulating: Trace,
}

impl Traces {
    /// Records both on the CPU: see [`Trace::record`].
    ///
    /// # Errors
    ///
    /// See [`Trace::record`].
    pub fn record<M: Module, B: Clone>(
        device: &Device,
        subject: &Subject<'_, M, B>,
        checkpointing: bool,
    ) -> Result<Self, MeasureError> {
        let record = |micro_batches| Trace::record(device, subject, micro_batches, checkpointing);
        Ok(Self { single: record(1)?, accumulating: record(ACCUMULATING)? })
    }

    /// Returns the memory that a GPU with `gpu` bytes would reserve, at micro-batches up to the `largest`; `samples` is a
    /// rank's share of the global batch. `None` when not even one sample fits into the largest page.
    pub fn measured(
        &self,
        precision: Precision,
        largest: u64,
        samples: Option<u64>,
        gpu: Bytes,
    ) -> Option<MeasuredMode> {
        let value_bytes = precision.parameter_bytes();
        let [single, accumulating] = [&self.single, &self.accumulating].map(|trace| trace.lowered(value_bytes));
        let memory = |steps: &Lowered, batch| steps.replayed(batch, gpu).map(|replayed| replayed.memory());
        let simulated = |batch: u64| {
            let tried = Tried {
                batch,
                memory: Some(memory(&single, batch)?),
                accumulating: memory(&accumulating, batch),
                ..Tried::default()
            };
            Some((batch, tried.measured()))
        };
        // Sizes up to the first that exceeds the memory, then in the gaps between them.
        let mut batch = BTreeMap::new();
        for size in micro_batches(largest, samples) {
            let Some((size, measured)) = simulated(size) else { break };
            batch.insert(size, measured);
            if measured.reserved_bytes > Some(gpu) {
                break;
            }
        }
        let (&largest, _) = batch.last_key_value()?;
        let missing = micro_batches(largest, samples).into_iter().filter(|size| !batch.contains_key(size));
        let missing: Vec<_> =
            missing.take(MOST_MICRO_BATCHES.saturating_sub(batch.len())).filter_map(simulated).collect();
        batch.extend(missing);
        Some(MeasuredMode { method: MeasurementMethod::Simulated, is_partial: false, batch })
    }
}
