//! Memory of the card allocated outside of Burn's pools, through the CUDA driver.

#![expect(unsafe_code, reason = "the driver's allocations are plain addresses")]

use std::sync::Arc;
use std::thread;

use anyhow::Context;
use cudarc::driver::{
    CudaContext, DriverError,
    result::{free_sync, malloc_sync},
    sys::{CUdeviceptr, CUresult},
};

/// The driver allocates memory in blocks of 2 MiB.
const PIECE: usize = 2 << 20;

/// A card, with the memory allocated on it.
pub struct Card {
    context: Arc<CudaContext>,
    held: Vec<CUdeviceptr>,
}

impl Card {
    /// The card with this CUDA index. Burn has already opened the device, so opening the card costs no memory.
    pub fn open(index: usize) -> anyhow::Result<Self> {
        let context = elsewhere(|| CudaContext::new(index)).context("no context")?;
        Ok(Self { context, held: Vec::new() })
    }

    /// Free bytes.
    pub fn free(&self) -> anyhow::Result<u64> {
        let (free, _) = elsewhere(|| self.context.mem_get_info()).context("free memory is not told")?;
        Ok(free as u64)
    }

    /// Allocates all free memory but `leave` bytes, in as few blocks as the driver allows.
    pub fn take_all_but(&mut self, leave: u64) -> anyhow::Result<()> {
        let context = &self.context;
        let taken = elsewhere(|| take(context, usize::try_from(leave).unwrap_or(usize::MAX)));
        self.held.extend(taken.context("memory could not be taken")?);
        Ok(())
    }

    /// Frees all memory.
    pub fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        let freed = elsewhere(|| {
            self.context.bind_to_thread()?;
            // SAFETY: each address comes from `malloc_sync` in this context, is freed once, and was never read or
            // written.
            held.into_iter().try_for_each(|address| unsafe { free_sync(address) })
        });
        if let Err(error) = freed {
            eprintln!("memory could not be given back: {error}");
        }
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        self.release();
    }
}

/// Allocates free memory in blocks, and halves the size when the driver refuses.
fn take(context: &CudaContext, leave: usize) -> Result<Vec<CUdeviceptr>, DriverError> {
    let mut taken = Vec::new();
    let mut most = usize::MAX;
    loop {
        let (free, _) = context.mem_get_info()?;
        let wanted = free.saturating_sub(leave).min(most) / PIECE * PIECE;
        if wanted == 0 {
            return Ok(taken);
        }
        // SAFETY: the context is current on this thread since `mem_get_info`; the memory is never accessed.
        match unsafe { malloc_sync(wanted) } {
            Ok(address) => taken.push(address),
            Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => most = wanted / 2,
            Err(error) => {
                for address in taken {
                    // SAFETY: as in `release`. Errors after the first failure are ignored.
                    unsafe { free_sync(address) }.ok();
                }
                return Err(error);
            }
        }
    }
}

/// Runs `work` in its own thread, because `work` changes the thread's current context.
fn elsewhere<T: Send>(work: impl FnOnce() -> Result<T, DriverError> + Send) -> Result<T, DriverError> {
    let outcome = thread::scope(|scope| scope.spawn(work).join());
    outcome.unwrap_or(Err(DriverError(CUresult::CUDA_ERROR_UNKNOWN)))
}
