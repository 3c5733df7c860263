//! Somebody else on the card, who takes memory and gives it back.
//!
//! On a GPU the memory is really taken: first the pools give back what they do not use, then all that is free beyond what
//! is to be left is allocated beside them, and where nothing is to be left, the holes in the pools' pages are filled.
//! Without a GPU micro-batches that would not fit are made to fail.

use burn::tensor::Device;
#[cfg(feature = "cuda")]
use burn::tensor::Tensor;
use serde::Serialize;

use super::hooks::At;
#[cfg(feature = "cuda")]
use crate::{card::Card, catching::catching, memory::Usage};

/// What a neighbour leaves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Left {
    /// What this process has in use, and beside it no more than loading a kernel takes.
    Nothing,
    /// This share of what a step of the planned micro-batch takes beside what stays.
    Share(f64),
}

/// What is left at least: a card on which not even a kernel can be loaded is another failure than that of a tensor.
#[cfg(feature = "cuda")]
const SPARE_BYTES: u64 = 8 << 20;

/// What steps of the planned micro-batch take.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Need {
    /// Samples in the planned micro-batch.
    pub(super) micro_batch: usize,
    /// Bytes in use between two steps.
    pub(super) between_bytes: u64,
    /// Bytes that the pools reserve for a step.
    pub(super) step_bytes: u64,
}

/// What was there when memory had been taken, in MiB; zeros without a GPU.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "lines of output tell the unit")]
pub(super) struct Taken {
    /// Free on the card before, once the pools had given back what they did not use.
    free_before_mib: u64,
    /// Free on the card.
    free_mib: u64,
    /// Reserved by the pools of this process.
    reserved_mib: u64,
    /// In use of that.
    in_use_mib: u64,
    /// What the pools' holes were filled with, which is counted as in use.
    filled_mib: u64,
}

/// Takes memory and gives it back.
pub(super) struct Neighbour {
    #[cfg(feature = "cuda")]
    device: Device,
    #[cfg(feature = "cuda")]
    card: Card,
    /// Holds what is to be spared while the rest is taken.
    #[cfg(feature = "cuda")]
    spare: Card,
    /// What fills the pools' holes.
    #[cfg(feature = "cuda")]
    plugs: Vec<Tensor<1>>,
    need: Need,
    #[cfg(not(feature = "cuda"))]
    left: Option<Left>,
}

impl Neighbour {
    /// A neighbour that holds nothing yet, on the card with this index of CUDA's; `device` is without autodiff.
    #[cfg(feature = "cuda")]
    pub(super) fn new(device: &Device, gpu: usize) -> anyhow::Result<Self> {
        let (card, spare) = (Card::open(gpu)?, Card::open(gpu)?);
        // What fills holes later is compiled now, while there is memory for kernels.
        plug(1 << 20, device)?;
        Ok(Self { device: device.clone(), card, spare, plugs: Vec::new(), need: Need::default() })
    }

    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::unnecessary_wraps, reason = "the signature is that of the version with CUDA")]
    pub(super) fn new(_: &Device, _: usize) -> anyhow::Result<Self> {
        Ok(Self { need: Need::default(), left: None })
    }

    /// What [`Left::Share`] is a share of.
    pub(super) fn learn(&mut self, need: Need) {
        self.need = need;
    }
}

#[cfg(feature = "cuda")]
impl Neighbour {
    /// Holds all but what is to be left, whatever it held before.
    pub(super) fn take(&mut self, left: Left) -> anyhow::Result<Taken> {
        self.plugs.clear();
        self.clean()?;
        let free_before = self.card.free()?;
        let usage = Usage::of(&self.device);
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
        let usage = Usage::of(&self.device);
        Ok(Taken {
            free_before_mib: free_before >> 20,
            free_mib: self.card.free()? >> 20,
            reserved_mib: usage.reserved_bytes >> 20,
            in_use_mib: usage.in_use_bytes >> 20,
            filled_mib: filled >> 20,
        })
    }

    /// Gives everything back.
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

    /// Fills what the pools have left in the pages that they keep, down to holes of a megabyte; returns the bytes.
    fn fill(&mut self) -> anyhow::Result<u64> {
        // A larger allocation than any before could change the size of the pools' pages.
        let largest = self.device.memory_pool_report().into_iter().flatten().map(|pool| pool.largest_alloc).max();
        let largest_mib = largest.unwrap_or_default() >> 20;
        // No new page can be had meanwhile, not even from what is to be spared.
        self.spare.take_all_but(self.spare.free()?.saturating_sub(SPARE_BYTES))?;
        self.card.take_all_but(0)?;
        let usage = Usage::of(&self.device);
        let (holes, mut filled) = (usage.reserved_bytes.saturating_sub(usage.in_use_bytes), 0);
        for mib in [256_u64, 64, 16, 4, 1].into_iter().filter(|mib| *mib <= largest_mib) {
            // Only a read tells whether there was memory.
            while filled + (mib << 20) <= holes
                && let Ok(plug) = catching(|| plug(mib << 20, &self.device))
            {
                self.plugs.push(plug);
                filled += mib << 20;
            }
        }
        // An allocation that failed made the pools give back what they could, which the caller takes.
        self.spare.release();
        Ok(filled)
    }

    /// Whether something is made to fail: memory that was taken fails on its own.
    #[expect(clippy::unused_self, reason = "the signature is that of the version without CUDA")]
    pub(super) fn strikes(&self, _: At, _: usize) -> bool {
        false
    }
}

/// A tensor of so many bytes, once it is known that there was memory for it.
#[cfg(feature = "cuda")]
fn plug(bytes: u64, device: &Device) -> anyhow::Result<Tensor<1>> {
    let plug = Tensor::<1>::zeros([bytes as usize / 4], device);
    plug.clone().narrow(0, 0, 1).try_into_data()?;
    Ok(plug)
}

#[cfg(not(feature = "cuda"))]
#[expect(clippy::unnecessary_wraps, reason = "the signatures are those of the version with CUDA")]
impl Neighbour {
    /// Lets only fail what is not to be left, whatever failed before.
    pub(super) fn take(&mut self, left: Left) -> anyhow::Result<Taken> {
        self.left = Some(left);
        Ok(Taken::default())
    }

    /// Lets nothing fail any more.
    pub(super) fn release(&mut self) -> anyhow::Result<()> {
        self.left = None;
        Ok(())
    }

    /// Whether so many samples are made to fail: those of the forward pass where a share is left.
    pub(super) fn strikes(&self, at: At, samples: usize) -> bool {
        match self.left {
            None => false,
            Some(Left::Nothing) => true,
            Some(Left::Share(share)) => at == At::Forward && samples as f64 > share * self.need.micro_batch as f64,
        }
    }
}
