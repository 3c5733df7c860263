//! Device memory, simulated by lazily committed host memory, and pinned memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::{MmapMut, MmapOptions};

/// Value of unwritten memory: 2.0 in fp32, and also in bf16 for two bytes.
const TWO: u32 = 0x4000_0000;

/// Allocated blocks, by address.
#[derive(Default)]
pub(crate) struct Memory {
    blocks: BTreeMap<u64, MmapMut>,
    used: u64,
}

/// Reasons for refusing memory.
#[derive(Debug, PartialEq)]
pub(crate) enum Refused {
    /// Too little memory is free.
    Full,
    /// No block has those bytes.
    Unknown,
}

/// The memory of the process's GPU.
pub(crate) fn device() -> MutexGuard<'static, Memory> {
    static DEVICE: Mutex<Memory> = Mutex::new(Memory { blocks: BTreeMap::new(), used: 0 });
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pinned memory of the process.
pub(crate) fn pinned() -> MutexGuard<'static, Memory> {
    static PINNED: Mutex<Memory> = Mutex::new(Memory { blocks: BTreeMap::new(), used: 0 });
    PINNED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// Allocates a block, if the total then stays within `most` bytes.
    pub(crate) fn take(&mut self, bytes: u64, most: u64) -> Result<u64, Refused> {
        if bytes > most.saturating_sub(self.used) {
            return Err(Refused::Full);
        }
        let mapped = MmapOptions::new().len(bytes as usize).no_reserve_swap().map_anon();
        let mut block = mapped.map_err(|_| Refused::Full)?;
        let address = block.as_mut_ptr().expose_provenance() as u64;
        self.used += bytes;
        self.blocks.insert(address, block);
        Ok(address)
    }

    /// Frees a block.
    pub(crate) fn give_back(&mut self, address: u64) -> Result<(), Refused> {
        let block = self.blocks.remove(&address).ok_or(Refused::Unknown)?;
        self.used -= block.len() as u64;
        Ok(())
    }

    /// Allocated bytes.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Writes to a block.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Refused> {
        let (begin, block) = self.blocks.range_mut(..=address).next_back().ok_or(Refused::Unknown)?;
        let at = (address - begin) as usize;
        let place = at.checked_add(bytes.len()).and_then(|end| block.get_mut(at..end));
        place.ok_or(Refused::Unknown)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Bytes written to a block, with zeros elsewhere.
    pub(crate) fn written(&self, address: u64, length: usize) -> Result<&[u8], Refused> {
        let (begin, block) = self.blocks.range(..=address).next_back().ok_or(Refused::Unknown)?;
        let at = (address - begin) as usize;
        at.checked_add(length).and_then(|end| block.get(at..end)).ok_or(Refused::Unknown)
    }
}

/// Fills unwritten bytes with 2.0, in place of the results of kernels.
pub(crate) fn fill(bytes: &mut [u8]) {
    if let Ok(half) = <&mut [u8; 2]>::try_from(&mut *bytes) {
        if *half == [0; 2] {
            *half = ((TWO >> 16) as u16).to_ne_bytes();
        }
        return;
    }
    for word in bytes.chunks_exact_mut(4).filter(|word| word.iter().all(|byte| *byte == 0)) {
        word.copy_from_slice(&TWO.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Refused, fill};

    #[test]
    fn what_is_written_is_read_and_no_byte_beside_it() {
        let mut memory = Memory::default();
        let block = memory.take(100, 1000).expect("there is enough");
        memory.write(block + 90, &[7; 10]).expect("within the block");
        assert_eq!(memory.written(block + 89, 3), Ok(&[0, 7, 7][..]));
        assert_eq!(memory.write(block + 91, &[7; 10]), Err(Refused::Unknown));
        assert_eq!(memory.written(block - 1, 1).err(), Some(Refused::Unknown));
        memory.give_back(block).expect("it is taken");
        assert_eq!(memory.written(block, 1).err(), Some(Refused::Unknown));
        assert_eq!(memory.give_back(block), Err(Refused::Unknown));
    }

    #[test]
    fn there_is_no_more_than_there_is() {
        let mut memory = Memory::default();
        let first = memory.take(600, 1000).expect("there is enough");
        assert_eq!(memory.take(401, 1000), Err(Refused::Full));
        memory.take(400, 1000).expect("there is enough");
        memory.give_back(first).expect("it is taken");
        assert_eq!(memory.used(), 400);
    }

    /// Virtual, or a plan for an H200 would need an H200's memory here.
    #[test]
    fn nothing_backs_what_is_not_written() {
        let block = Memory::default().take(1 << 37, u64::MAX);
        assert!(block.is_ok(), "{block:?}");
    }

    #[test]
    fn what_nobody_wrote_is_two() {
        let mut floats = [1.0_f32, 0.0].map(f32::to_ne_bytes).concat();
        fill(&mut floats);
        assert_eq!(floats, [1.0_f32, 2.0].map(f32::to_ne_bytes).concat());
        let mut half = [0; 2];
        fill(&mut half);
        assert_eq!(u32::from(u16::from_ne_bytes(half)) << 16, 2.0_f32.to_bits());
    }
}
