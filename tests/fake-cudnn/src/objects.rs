//! The library's objects.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::graph::Part;

/// `CUDNN_STATUS_BAD_PARAM`.
pub(crate) const BAD_PARAM: c_int = 2000;
/// `CUDNN_STATUS_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: c_int = 3000;
/// `CUDNN_STATUS_INTERNAL_ERROR`.
pub(crate) const INTERNAL_ERROR: c_int = 4000;

/// Bytes of scratch memory of the fastest algorithm.
pub const WORKSPACE_BYTES: usize = 4096;
/// Most dimensions of a tensor.
pub(crate) const MOST_DIMENSIONS: usize = 8;

#[derive(Clone, Debug)]
pub(crate) enum Object {
    Handle,
    /// `None` until it is set.
    Tensor(Option<Tensor>),
    Filter(Option<Tensor>),
    Convolution(Option<Convolution>),
    /// True once it is set.
    Dropout(bool),
    Recurrence(Option<Layer>),
    Sequences(Option<Sequences>),
    /// Of a graph.
    Part(Part),
}

impl Object {
    fn is_kind_of(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// `cudnnTensorDescriptor_t`, or `cudnnFilterDescriptor_t` with the strides of its format.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) data_type: c_int,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
}

/// `cudnnConvolutionDescriptor_t`.
#[derive(Clone, Debug)]
pub(crate) struct Convolution {
    pub(crate) padding: Vec<usize>,
    pub(crate) stride: Vec<usize>,
    pub(crate) dilation: Vec<usize>,
    pub(crate) groups: usize,
    pub(crate) math: c_int,
}

/// `cudnnRNNDescriptor_t`.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) is_lstm: bool,
    pub(crate) has_bias: bool,
    pub(crate) data_type: c_int,
    pub(crate) math: c_int,
    pub(crate) inputs: usize,
    pub(crate) hidden: usize,
    /// Address of the descriptor that has to live as long.
    pub(crate) dropout: usize,
}

/// `cudnnRNNDataDescriptor_t` of sequences of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sequences {
    pub(crate) data_type: c_int,
    pub(crate) steps: usize,
    pub(crate) batch: usize,
    pub(crate) numbers: usize,
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
    with(|alive| alive.get(&address).cloned()).ok_or(BAD_PARAM)
}

/// Replaces an object by one of the same kind.
pub(crate) fn set(address: usize, object: Object) -> Result<(), c_int> {
    with(|alive| {
        let old = alive.get_mut(&address).filter(|old| old.is_kind_of(&object)).ok_or(BAD_PARAM)?;
        *old = object;
        Ok(())
    })
}

/// Removes an object of a kind.
pub(crate) fn destroy(address: usize, kind: &Object) -> Result<(), c_int> {
    with(|alive| {
        alive
            .get(&address)
            .is_some_and(|object| object.is_kind_of(kind))
            .then(|| alive.remove(&address))
            .ok_or(BAD_PARAM)
    })
    .map(drop)
}

pub(crate) fn add_mistake() {
    MISTAKES.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn counts() -> [usize; 3] {
    [CREATED.load(Ordering::Relaxed), with(|alive| alive.len()), MISTAKES.load(Ordering::Relaxed)]
}
