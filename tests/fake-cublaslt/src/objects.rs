//! The library's objects and their attributes.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// `CUBLAS_STATUS_INVALID_VALUE`.
pub(crate) const INVALID_VALUE: c_int = 7;
/// `CUBLAS_STATUS_INTERNAL_ERROR`.
pub(crate) const INTERNAL_ERROR: c_int = 14;
/// `CUBLAS_STATUS_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: c_int = 15;

/// Parts of a sum are added in f32.
pub(crate) const IN_COMPUTE_TYPE: u32 = 2;

/// Workspace of each algorithm, in bytes.
pub const WORKSPACE_BYTES: usize = 1024;
/// Alignment of addresses in bytes that the fastest algorithm needs.
pub const ALIGNMENT: u32 = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Object {
    Handle,
    Description(Description),
    Layout(Layout),
    Preference(Preference),
}

/// `cublasLtMatmulDesc_t`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Description {
    pub(crate) tf32: bool,
    pub(crate) transposed: [bool; 2],
    pub(crate) epilogue: u32,
    pub(crate) vector: u64,
    pub(crate) auxiliary: u64,
    pub(crate) auxiliary_leading: i64,
}

/// `cublasLtMatrixLayout_t`: matrices in columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) data_type: c_int,
    pub(crate) rows: i64,
    pub(crate) columns: i64,
    pub(crate) leading: i64,
    pub(crate) batches: i32,
    pub(crate) batch_stride: i64,
}

/// `cublasLtMatmulPreference_t`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preference {
    pub(crate) workspace_bytes: u64,
    /// Ways to add parts of a sum: a mask of `cublasLtReductionScheme_t`.
    pub(crate) reductions: u32,
    pub(crate) alignments: [u32; 4],
}

impl Default for Preference {
    fn default() -> Self {
        Self { workspace_bytes: 0, reductions: 7, alignments: [256; 4] }
    }
}

/// Bytes of an attribute as a number, if they have its size.
fn number<const N: usize>(bytes: &[u8]) -> Result<[u8; N], c_int> {
    bytes.try_into().map_err(|_| INVALID_VALUE)
}

impl Object {
    pub(crate) fn set(&mut self, attribute: c_int, bytes: &[u8]) -> Result<(), c_int> {
        match (self, attribute) {
            (Self::Description(it), 3 | 4) => {
                let operation = i32::from_ne_bytes(number(bytes)?);
                it.transposed[attribute as usize - 3] = match operation {
                    0 => false,
                    1 => true,
                    _ => return Err(INVALID_VALUE),
                };
            }
            (Self::Description(it), 7) => it.epilogue = u32::from_ne_bytes(number(bytes)?),
            (Self::Description(it), 8) => it.vector = u64::from_ne_bytes(number(bytes)?),
            (Self::Description(it), 11) => it.auxiliary = u64::from_ne_bytes(number(bytes)?),
            (Self::Description(it), 12) => it.auxiliary_leading = i64::from_ne_bytes(number(bytes)?),
            (Self::Layout(it), 5) => it.batches = i32::from_ne_bytes(number(bytes)?),
            (Self::Layout(it), 6) => it.batch_stride = i64::from_ne_bytes(number(bytes)?),
            (Self::Preference(it), 1) => it.workspace_bytes = u64::from_ne_bytes(number(bytes)?),
            (Self::Preference(it), 3) => it.reductions = u32::from_ne_bytes(number(bytes)?),
            (Self::Preference(it), 5..=8) => {
                let alignment = u32::from_ne_bytes(number(bytes)?);
                if !alignment.is_power_of_two() {
                    return Err(INVALID_VALUE);
                }
                it.alignments[attribute as usize - 5] = alignment;
            }
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }
}

/// Living objects by their addresses, which are numbers here.
static ALIVE: Mutex<Option<HashMap<usize, Object>>> = Mutex::new(None);
static CREATED: AtomicUsize = AtomicUsize::new(0);
static MISTAKES: AtomicUsize = AtomicUsize::new(0);

fn with<T>(work: impl FnOnce(&mut HashMap<usize, Object>) -> T) -> T {
    work(ALIVE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Stores an object. Returns its address.
pub(crate) fn create(object: Object) -> usize {
    let address = (CREATED.fetch_add(1, Ordering::Relaxed) + 1) * 16;
    with(|alive| alive.insert(address, object));
    address
}

pub(crate) fn get(address: usize) -> Result<Object, c_int> {
    with(|alive| alive.get(&address).copied()).ok_or(INVALID_VALUE)
}

pub(crate) fn change(address: usize, change: impl FnOnce(&mut Object) -> Result<(), c_int>) -> Result<(), c_int> {
    with(|alive| alive.get_mut(&address).ok_or(INVALID_VALUE).and_then(change))
}

/// Removes an object if it is one of those to remove.
pub(crate) fn destroy(address: usize, is_meant: impl FnOnce(&Object) -> bool) -> Result<(), c_int> {
    with(|alive| {
        alive.get(&address).is_some_and(is_meant).then(|| alive.remove(&address)).map(|_| ()).ok_or(INVALID_VALUE)
    })
}

pub(crate) fn add_mistake() {
    MISTAKES.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn counts() -> [usize; 3] {
    [CREATED.load(Ordering::Relaxed), with(|alive| alive.len()), MISTAKES.load(Ordering::Relaxed)]
}
