//! Simulates another process on the card that allocates and frees memory.
//!
//! On a GPU the memory is really taken. The pools first release unused memory. Then all free memory beyond the part
//! to leave is allocated outside of the pools. For `Nothing`, the holes in the pools' pages are filled, too. Without
//! a GPU, micro-batches that would not fit are made to fail.

use burn::tensor::Device;
#[cfg(feature = "cuda")]
use burn::tensor::Tensor;
use serde::Serialize;

use super::hooks::At;
#[cfg(feature = "cuda")]
use crate::{card::Card, catching::catching, memory::Usage};

/// Memory left by the neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Left {
    /// The memory in use by this process, plus just enough to load a kernel.
    Nothing,
    /// A share of a step's memory with the planned micro-batch, in addition to the permanent memory.
    Share(f64),
}

/// Minimum free memory. Otherwise loading a kernel would fail, which differs from a failing tensor.
#[cfg(feature = "cuda")]
const SPARE_BYTES: u64 = 8 << 20;

/// Memory needs of steps with the planned micro-batch.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Need {
    /// Samples in the planned micro-batch.
    pub(super) micro_batch: usize,
    /// Bytes in use between two steps.
    pub(super) between_bytes: u64,
    /// Bytes that the pools reserve for a step.
    pub(super) step_bytes: u64,
}

/// Memory after taking, in MiB; zeros without a GPU.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "lines of output tell the unit")]
pub(super) struct Taken {
    /// Free memory of the card before, after the pools released unused memory.
    free_before_mib: u64,
    /// Free on the card.
    free_mib: u64,
    /// Reserved by the pools of this process.
    reserved_mib: u64,
    /// In use of that.
    in_use_mib: u64,
    /// Memory that fills the pools' holes; counted as in use.
    filled_mib: u64,
}

/// Allocates and frees memory like another process.
pub(super) struct Neighbour {
    #[cfg(feature = "cuda")]
    device: Device,
    #[cfg(feature = "cuda")]
    card: Card,
    /// Memory to leave, allocated while the rest is taken.
    #[cfg(feature = "cuda")]
    spare: Card,
    /// Tensors that fill the pools' holes.
    #[cfg(feature = "cuda")]
    plugs: Vec<Tensor<1>>,
    need: Need,
    #[cfg(not(feature = "cuda"))]
    left: Option<Left>,
}

impl Neighbour {
    /// A neighbour without memory, on the card with this CUDA index; `device` has no autodiff.
    #[cfg(feature = "cuda")]
    pub(super) fn new(device: &Device, gpu: usize) -> anyhow::Result<Self> {
        let (card, spare) = (Card::open(gpu)?, Card::open(gpu)?);
        // Compiles the fill kernel now, while there is memory for kernels.
        plug(1 << 20, device)?;
        Ok(Self { device: device.clone(), card, spare, plugs: Vec::new(), need: Need::default() })
    }

    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::unnecessary_wraps, reason = "the signature is that of the version with CUDA")]
    pub(super) fn new(_: &Device, _: usize) -> anyhow::Result<Self> {
        Ok(Self { need: Need::default(), left: None })
    }

    /// Sets the base of [`Left::Share`].
    pub(super) fn learn(&mut self, need: Need) {
        self.need = need;
    }
}

#[cfg(feature = "cuda")]
impl Neighbour {
    /// Takes all memory except for `left`; releases earlier memory first.
    pub(super) fn take(&mut self, left: Left) -> anyhow::Result<Taken> {
        self.plugs.clear();
        self.clean()?;
        let free_before = self.card.free()?;
        let usage = Usage::read(&self.device);
        self.card.release();
        let budget = match left {
            Left::Nothing => 0,
            Left::Share(share) => {
                let beside = self.need.step_bytes.saturating_sub(self.need.between_bytes);
                self.need.between_bytes + (share * beside as f64) as u64
            }
        };
        let leave = budget.saturating_sub(usage.reserved_bytes).max(SPARE_BYTES);
        let filled = if left == Left::Nothing { self.fill()? } else { 0 };
        self.card.take_all_but(leave)?;
        let usage = Usage::read(&self.device);
        Ok(Taken {
            free_before_mib: free_before >> 20,
            free_mib: self.card.free()? >> 20,
            reserved_mib: usage.reserved_bytes >> 20,
            in_use_mib: usage.in_use_bytes >> 20,
            filled_mib: filled >> 20,
        })
    }

    /// Frees all memory.
    pub(super) fn release(&mut self) -> anyhow::Result<()> {
        self.plugs.clear();
        self.spare.release();
        self.card.release();
        self.clean()
    }

    fn clean(&self) -> anyhow::Result<()> {
        self.device.sync()?;
        self.device.memory_cleanup();
        self.device.sync()?;
        Ok(())
    }

    /// Fills holes in the pools' pages, down to 1 MiB; returns the bytes.
    fn fill(&mut self) -> anyhow::Result<u64> {
        // A larger allocation than any before could change the size of the pools' pages.
        let largest = self.device.memory_pool_report().into_iter().flatten().map(|pool| pool.largest_alloc).max();
        let largest_mib = largest.unwrap_or_default() >> 20;
        // Meanwhile no new page must be available, not even from the memory to leave.
        self.spare.take_all_but(self.spare.free()?.saturating_sub(SPARE_BYTES))?;
        self.card.take_all_but(0)?;
        let usage = Usage::read(&self.device);
        let (holes, mut filled) = (usage.reserved_bytes.saturating_sub(usage.in_use_bytes), 0);
        for mib in [256_u64, 64, 16, 4, 1].into_iter().filter(|mib| *mib <= largest_mib) {
            // Only a read shows whether there was memory.
            while filled + (mib << 20) <= holes
                && let Ok(plug) = catching(|| plug(mib << 20, &self.device))
            {
                self.plugs.push(plug);
                filled += mib << 20;
            }
        }
        // A failed allocation made the pools release memory, which the caller takes.
        self.spare.release();
        Ok(filled)
    }

    /// Returns true if the step must be made to fail; here taken memory fails by itself.
    #[expect(clippy::unused_self, reason = "the signature is that of the version without CUDA")]
    pub(super) fn strikes(&self, _: At, _: usize) -> bool {
        false
    }
}

/// A tensor of `bytes` bytes, read back to ensure that there was memory.
#[cfg(feature = "cuda")]
fn plug(bytes: u64, device: &Device) -> anyhow::Result<Tensor<1>> {
    let plug = Tensor::<1>::zeros([bytes as usize / 4], device);
    plug.clone().narrow(0, 0, 1).try_into_data()?;
    Ok(plug)
}

#[cfg(not(feature = "cuda"))]
#[expect(clippy::unnecessary_wraps, reason = "the signatures are those of the version with CUDA")]
impl Neighbour {
    /// Sets the memory left; micro-batches that exceed it are made to fail.
    pub(super) fn take(&mut self, left: Left) -> anyhow::Result<Taken> {
        self.left = Some(left);
        Ok(Taken::default())
    }

    /// Stops failing micro-batches.
    pub(super) fn release(&mut self) -> anyhow::Result<()> {
        self.left = None;
        Ok(())
    }

    /// Returns true if `samples` samples must be made to fail; for a share, those of the forward pass.
    pub(super) fn strikes(&self, at: At, samples: usize) -> bool {
        match self.left {
            None => false,
            Some(Left::Nothing) => true,
            Some(Left::Share(share)) => at == At::Forward && samples as f64 > share * self.need.micro_batch as f64,
        }
    }
}
