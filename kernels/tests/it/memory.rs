//! Numbers in host memory, in place of a device's, and an opened fake.

use std::collections::HashMap;

use fake_cublaslt::Fake;
use gpu_tuned_kernels::cublaslt::{CublasLt, Element, Handle, Memory};

/// Numbers that nothing writes have this value.
pub(crate) const UNTOUCHED: f32 = -77.0;

/// A buffer whose first number is `offset` numbers behind an address of the largest alignment.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    element: Element,
}

impl Buffer {
    pub(crate) fn new(element: Element, offset: usize, length: usize) -> Self {
        let size = element.bytes();
        let bytes = vec![0; (offset + length) * size + 256];
        let start = bytes.as_ptr().align_offset(256) + offset * size;
        let mut buffer = Self { bytes, start, element };
        (0..length).for_each(|index| buffer.set(index, UNTOUCHED));
        buffer
    }

    /// A buffer of bytes that are no numbers.
    pub(crate) fn of_bytes(bytes: usize) -> Self {
        Self::new(Element::Bf16, 0, bytes / 2)
    }

    fn place(&self, index: usize) -> std::ops::Range<usize> {
        let size = self.element.bytes();
        self.start + index * size..self.start + (index + 1) * size
    }

    pub(crate) fn set(&mut self, index: usize, number: f32) {
        let place = self.place(index);
        let bytes = number.to_ne_bytes();
        // Numbers of tests have no more digits than bf16.
        let kept = if self.element == Element::Bf16 { &bytes[2..] } else { &bytes[..] };
        self.bytes[place].copy_from_slice(kept);
    }

    pub(crate) fn get(&self, index: usize) -> f32 {
        let bytes = &self.bytes[self.place(index)];
        let mut number = [0; 4];
        number[4 - bytes.len()..].copy_from_slice(bytes);
        f32::from_ne_bytes(number)
    }

    /// All numbers that are not [`UNTOUCHED`], by index.
    pub(crate) fn touched(&self, length: usize) -> HashMap<usize, f32> {
        (0..length).map(|index| (index, self.get(index))).filter(|(_, number)| *number != UNTOUCHED).collect()
    }

    pub(crate) fn memory(&mut self, length: usize) -> Memory {
        let bytes = (length * self.element.bytes()) as u64;
        Memory { address: self.bytes[self.start..].as_mut_ptr().addr() as u64, bytes }
    }
}

/// A library of its own with a handle, both freed at the end.
pub(crate) struct Opened {
    pub(crate) fake: Fake,
    pub(crate) handle: &'static Handle,
    library: &'static CublasLt,
}

impl Opened {
    pub(crate) fn new() -> Self {
        let fake = Fake::new();
        let library: &'static CublasLt = Box::leak(Box::new(CublasLt::load(&fake.path()).expect("a library")));
        let handle = Box::leak(Box::new(Handle::new(library).expect("a handle")));
        Self { fake, handle, library }
    }

    /// Frees the handle. No plan is alive.
    pub(crate) fn close(self) -> fake_cublaslt::Counts {
        let Self { fake, handle, library } = self;
        // SAFETY: leaked by `new`, and nothing borrows it any more.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(handle).cast_mut()) });
        let counts = fake.counts();
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(library).cast_mut()) });
        counts
    }
}
