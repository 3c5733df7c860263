use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::{MeasuredBatch, Mode};

use super::budget::Budget;
use super::report::Work;
use super::{Memory, Step, Subject, Times};

/// Model, device and limits of a measurement.
pub(super) struct Bench<'b, 'a, M, B> {
    /// The device, without autodiff.
    pub(super) device: &'b Device,
    pub(super) subject: &'b Subject<'a, M, B>,
    /// The precision, without checkpointing.
    pub(super) plain: Mode,
    /// Largest micro-batch: a rank's share of the global batch.
    pub(super) largest_batch: u64,
    /// A rank's share of the global batch, if there is one.
    pub(super) global: Option<u64>,
    /// Micro-batch to begin near: the planned one, or 1 if the description is of another model.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "CPUs try sizes in ascending order"))]
    pub(super) planned: u64,
    /// Time for all modes.
    pub(super) budget: &'b Budget,
    /// Called before steps that are taken for a figure.
    pub(super) begins: &'b dyn Fn(Work),
    /// Called after every try.
    pub(super) progress: &'b dyn Fn(Mode, &Tried),
}

/// Measurements of one micro-batch so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tried {
    pub(super) batch: u64,
    /// Memory of steps with one micro-batch; `None` where nothing counts it.
    pub(super) memory: Option<Memory>,
    /// Memory of steps that accumulate gradients.
    pub(super) accumulating: Option<Memory>,
    pub(super) times: Option<Times>,
    /// Bytes that executed steps reserved, with accumulated gradients.
    pub(super) ran: Option<Bytes>,
}

/// Micro-batches of a step that accumulates gradients; more of them take no more memory.
pub(super) const ACCUMULATING: usize = 2;

impl<M: Module, B: Clone> Bench<'_, '_, M, B> {
    pub(super) fn mode(&self, checkpointing: bool) -> Mode {
        Mode { checkpointing, ..self.plain }
    }

    pub(super) fn say(&self, checkpointing: bool, tried: &Tried) {
        (self.progress)(self.mode(checkpointing), tried);
    }
}

impl Step {
    pub(super) fn single(batch: u64, checkpointing: bool) -> Self {
        Self {
            batch: usize::try_from(batch).unwrap_or(usize::MAX),
            micro_batches: 1,
            checkpointing,
            cuda_graphs: false,
        }
    }

    pub(super) fn accumulating(batch: u64, checkpointing: bool) -> Self {
        Self { micro_batches: ACCUMULATING, ..Self::single(batch, checkpointing) }
    }
}

impl Tried {
    #[cfg(any(feature = "cuda", test))]
    pub(super) fn reserved(&self) -> Option<Bytes> {
        self.memory.map(|memory| memory.reserved_bytes)
    }

    /// Measurements as a lock stores them.
    pub(super) fn measured(&self) -> MeasuredBatch {
        let in_use_bytes = self.memory.and_then(|memory| memory.in_use_bytes);
        // The bytes in use are read in a further step, whose pages may be more than the steps before reserved.
        let reserved = |memory: Memory| memory.reserved_bytes.max(in_use_bytes.unwrap_or_default());
        let accumulating = self.accumulating.map(reserved);
        MeasuredBatch {
            reserved_bytes: self.memory.map(reserved),
            reserved_accumulating_bytes: accumulating.map(|bytes| bytes.max(self.ran.unwrap_or_default())),
            in_use_bytes,
            micro_step_ms: self.times.map(|times| times.micro_step_ms),
            optimizer_ms: self.times.map(|times| times.optimizer_ms),
            spread: self.times.map(|times| times.spread),
        }
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Bytes;

    use super::{Memory, Tried};

    #[test]
    fn bytes_in_use_are_reserved() {
        let memory = |reserved: u64, in_use: u64| Memory {
            reserved_bytes: Bytes::from_mib(reserved),
            in_use_bytes: Some(Bytes::from_mib(in_use)),
        };
        let tried = |memory, accumulating| Tried { batch: 8, memory, accumulating, ..Tried::default() };
        let point = tried(Some(memory(100, 110)), Some(memory(90, 0))).measured();
        assert_eq!([point.reserved_bytes, point.reserved_accumulating_bytes], [Some(Bytes::from_mib(110)); 2]);
        let point = tried(Some(memory(100, 80)), Some(memory(90, 0))).measured();
        let found = [point.reserved_bytes, point.reserved_accumulating_bytes, point.in_use_bytes];
        assert_eq!(found, [100, 90, 80].map(|mib| Some(Bytes::from_mib(mib))));
        assert_eq!(tried(None, None).measured().reserved_bytes, None);
        let ran = Tried { ran: Some(Bytes::from_mib(95)), ..tried(Some(memory(100, 80)), Some(memory(90, 0))) };
        assert_eq!(ran.measured().reserved_accumulating_bytes, Some(Bytes::from_mib(95)));
    }
}
