use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::select::{Piece, Sample, Seconds};
use gpu_tuned_core::measured::{Mode, Point};

use super::{Memory, Step, Subject, Times};

/// What is measured, where, and how far.
pub(super) struct Bench<'b, 'a, M, B> {
    /// Without autodiff.
    pub(super) device: &'b Device,
    pub(super) subject: &'b Subject<'a, M, B>,
    /// Number formats, without checkpointing.
    pub(super) plain: Mode,
    /// No micro-batch is larger than a rank's part of the global batch.
    pub(super) largest_batch: u64,
    /// Told of every step before it is measured.
    pub(super) begins: &'b dyn Fn(Step),
    /// Told of every batch that was measured.
    pub(super) progress: &'b dyn Fn(Mode, &Tried),
}

/// What is known of a batch so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tried {
    pub(super) batch: u64,
    /// `None` where nothing counts it.
    pub(super) memory: Option<Memory>,
    /// With gradients added up.
    pub(super) accumulating: Option<Memory>,
    pub(super) times: Option<Times>,
    /// What steps that were run reserved, with gradients added up.
    #[cfg_attr(not(any(feature = "cuda", test)), expect(dead_code, reason = "what concerns GPUs alone"))]
    pub(super) ran: Option<Bytes>,
    /// The line through it, where it is kept.
    pub(super) piece: Option<Piece>,
}

/// Micro-batches of a step whose gradients are added up; more of them take no more memory.
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
        Self { batch: usize::try_from(batch).unwrap_or(usize::MAX), micro_batches: 1, checkpointing }
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

    /// `None` where memory was not measured.
    pub(super) fn sample(&self) -> Option<Sample> {
        let seconds = self
            .times
            .map(|times| Seconds { micro_step: times.micro_step_ms / 1e3, optimizer: times.optimizer_ms / 1e3 });
        let memory = self.memory?;
        Some(Sample {
            batch: self.batch,
            reserved: memory.reserved_bytes,
            in_use: memory.in_use_bytes,
            held: memory.pages,
            seconds,
        })
    }

    pub(super) fn point(&self) -> Point {
        let in_use_bytes = self.memory.and_then(|memory| memory.in_use_bytes);
        // Read in a further step, and in pages of that step whatever the steps before held.
        let holding = |memory: Memory| memory.reserved_bytes.max(in_use_bytes.unwrap_or_default());
        Point {
            reserved_bytes: self.memory.map(holding),
            reserved_bytes_per_sample: self.piece.map(|piece| piece.per_sample),
            reserved_from: self.piece.map(|piece| piece.from).filter(|from| *from != self.batch),
            residual: self.piece.map(|piece| piece.residual),
            reserved_accumulating_bytes: self.accumulating.map(holding),
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
    fn a_point_reserves_what_is_in_use() {
        let memory = |reserved: u64, in_use: u64| Memory {
            reserved_bytes: Bytes::from_mib(reserved),
            in_use_bytes: Some(Bytes::from_mib(in_use)),
            pages: None,
        };
        let tried = |memory, accumulating| Tried { batch: 8, memory, accumulating, ..Tried::default() };
        let point = tried(Some(memory(100, 110)), Some(memory(90, 0))).point();
        assert_eq!([point.reserved_bytes, point.reserved_accumulating_bytes], [Some(Bytes::from_mib(110)); 2]);
        let point = tried(Some(memory(100, 80)), Some(memory(90, 0))).point();
        let found = [point.reserved_bytes, point.reserved_accumulating_bytes, point.in_use_bytes];
        assert_eq!(found, [100, 90, 80].map(|mib| Some(Bytes::from_mib(mib))));
        assert_eq!(tried(None, None).point().reserved_bytes, None);
    }
}
