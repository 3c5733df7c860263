//! Points for a lock, of steps that were recorded.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::measured::select::{Piece, Sample, Selected, ladder, refined, select};
use gpu_tuned_core::measured::{Measured, MeasuredMode, Point, Way};
use gpu_tuned_core::{Bytes, Precision};

use super::replayed::{Lowered, Trace};
use crate::measure::bench::{ACCUMULATING, Tried};
use crate::measure::{MeasureError, Memory, Subject};

/// The most micro-batches that are replayed for a mode, and the fewest.
const MOST: usize = 32;
const FEWEST: usize = 8;
/// Limit of simulated allocations and frees of a mode. A count instead of a time gives equal results on every host.
const OPS: usize = 4_000_000;

/// Steps of one micro-batch, and steps that add up the gradients of two, both without or both with checkpointing.
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

    /// Simulates a few micro-batches up to the largest, for a GPU with so much memory, as a lock stores them; `missed`
    /// is the [margin of simulations](crate::measure::missed()). `None` if one sample exceeds the largest page.
    pub fn measured(&self, precision: Precision, largest: u64, gpu: Bytes, missed: f64) -> Option<MeasuredMode> {
        let value_bytes = precision.parameter_bytes();
        let [single, accumulating] = [&self.single, &self.accumulating].map(|trace| trace.lowered(value_bytes));
        let found = climb(&single, largest, gpu);
        let Selected { batches, pieces, mut pages } = select(&samples(&found), Measured::MOST_POINTS, None);
        // What lines and pages miss of what was replayed, which misses what a GPU reserves.
        let twice = |residual: f64| ((1.0 + residual) * (1.0 + missed) - 1.0).min(1.0);
        let point = |(batch, memory): &(u64, Memory)| {
            let piece = pieces.iter().find(|piece| piece.batch == *batch);
            let tried = Tried {
                batch: *batch,
                memory: Some(*memory),
                accumulating: accumulating.replayed(*batch, gpu).map(|replayed| replayed.memory()),
                piece: piece.map(|piece| Piece { residual: twice(piece.residual), ..*piece }),
                ..Tried::default()
            };
            (*batch, tried.point())
        };
        let batch: BTreeMap<u64, Point> =
            found.iter().filter(|(batch, _)| batches.contains(batch)).map(point).collect();
        for told in pages.values_mut() {
            told.residual = twice(told.residual);
        }
        let residuals =
            batch.values().filter_map(|point| point.residual).chain(pages.values().map(|told| told.residual));
        let residual = Some(residuals.reduce(f64::max)?);
        Some(MeasuredMode { way: Way::Replayed, residual, time_residual: None, pages, batch })
    }
}

/// Larger and larger micro-batches until one reserves more than there is, and some between them, where the number of pages
/// changes; sorted.
fn climb(steps: &Lowered, largest: u64, gpu: Bytes) -> Vec<(u64, Memory)> {
    let count = (OPS / steps.ops().max(1)).clamp(FEWEST, MOST);
    let mut found: Vec<(u64, Memory)> = Vec::new();
    for batch in spread(&ladder(largest), count) {
        if found.last().is_some_and(|(_, memory)| memory.reserved_bytes > gpu) {
            break;
        }
        let Some(replayed) = steps.replayed(batch, gpu) else { break };
        found.push((batch, replayed.memory()));
    }
    while found.len() < count {
        let Some(batch) = refined(&samples(&found), gpu, |_| true) else { break };
        let Some(replayed) = steps.replayed(batch, gpu) else { break };
        let at = found.partition_point(|(known, _)| *known < batch);
        found.insert(at, (batch, replayed.memory()));
    }
    found
}

/// At most so many of the batches, evenly, with the first and the last.
fn spread(batches: &[u64], count: usize) -> Vec<u64> {
    let (last, kept) = (batches.len() - 1, count.min(batches.len()));
    let place = |number: usize| number * last / (kept - 1).max(1);
    (0..kept).map(|number| batches[place(number)]).collect()
}

fn samples(found: &[(u64, Memory)]) -> Vec<Sample> {
    let sample = |(batch, memory): &(u64, Memory)| Sample {
        batch: *batch,
        reserved: memory.reserved_bytes,
        in_use: memory.in_use_bytes,
        held: memory.pages,
        seconds: None,
    };
    found.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn batches_are_left_out_evenly() {
        let ladder = [1, 2, 3, 4, 6, 8, 12, 16];
        assert_eq!(spread(&ladder, 20), ladder);
        assert_eq!(spread(&ladder, 4), [1, 3, 6, 16]);
        assert_eq!(spread(&[7], 4), [7]);
    }
}
