//! NVIDIA's NCCL: sums over processes, loaded when the program runs.
//!
//! All `unsafe` code of the library is here. Types and numbers follow the library's header, version 2.14 and later.
//!
//! Communicators do not block: a call returns before it has reached the other processes, and one thread can abort what
//! another one waits for.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libloading::Library;

use crate::cublaslt::Memory;
use crate::find::LoadError;
use crate::functions::functions;

/// Oldest version with communicators that do not block.
const OLDEST: usize = 21_400;

/// Failure of a call of NCCL.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum NcclError {
    /// A call failed. The library's texts name `NCCL_DEBUG`, which prints more.
    #[error("{call} of NCCL failed: {reason}")]
    Call {
        /// The library's function.
        call: &'static str,
        /// The library's texts for the status and for the last error.
        reason: String,
    },
    /// The communicator was aborted.
    #[error("NCCL was aborted, because the ranks have ended")]
    Aborted,
    /// Numbers do not lie within their buffer.
    #[error("a sum of {needed} bytes exceeds its buffer of {found} bytes")]
    TooLarge {
        /// Bytes of the numbers.
        needed: u64,
        /// Bytes of the buffer.
        found: u64,
    },
    /// More ranks, or a rank, than the library counts.
    #[error("NCCL has no rank {rank} of {ranks}")]
    Rank {
        /// Number of the process.
        rank: usize,
        /// Number of processes.
        ranks: usize,
    },
}

type Object = *mut c_void;

functions! {
    error_text = b"ncclGetErrorString\0": fn(c_int) -> *const c_char;
    last_error = b"ncclGetLastError\0": fn(Object) -> *const c_char;
    unique_id = b"ncclGetUniqueId\0": fn(*mut UniqueId) -> c_int;
    join = b"ncclCommInitRankConfig\0": fn(*mut Object, c_int, UniqueId, c_int, *mut Config) -> c_int;
    status = b"ncclCommGetAsyncError\0": fn(Object, *mut c_int) -> c_int;
    abort = b"ncclCommAbort\0": fn(Object) -> c_int;
    all_reduce = b"ncclAllReduce\0":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, Object, Object) -> c_int;
}

// `ncclResult_t`
const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;
/// `ncclSum` of `ncclRedOp_t`.
const SUM: c_int = 0;

/// `ncclUniqueId`: the address of the first rank, from which the others learn the rest. Whoever has it can join.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId([u8; UniqueId::BYTES]);

impl std::fmt::Debug for UniqueId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("UniqueId(..)")
    }
}

impl UniqueId {
    const BYTES: usize = 128;

    /// The identifier of these bytes; `None` if they are too few or too many.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The bytes for the other ranks.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// `ncclConfig_t` of version 2.14: later versions take their defaults for what follows.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    /// Unset. Without it, the size would have bytes of no value.
    cga_cluster_size: c_int,
}

/// Type of numbers that are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// 16 bits, 10 of them fraction.
    F16,
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
    /// 16 bits, 7 of them fraction.
    Bf16,
}

impl Number {
    /// Bytes of a number.
    const fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// `ncclDataType_t`.
    const fn data_type(self) -> c_int {
        match self {
            Self::F16 => 6,
            Self::F32 => 7,
            Self::F64 => 8,
            Self::Bf16 => 9,
        }
    }
}

/// The loaded library.
pub struct Nccl {
    functions: Functions,
    path: PathBuf,
    version: usize,
    /// Keeps the functions loaded.
    _library: Library,
}

impl std::fmt::Debug for Nccl {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, version, .. } = self;
        formatter.debug_struct("Nccl").field("path", path).field("version", version).finish_non_exhaustive()
    }
}

impl Nccl {
    /// Loads the library from a file, or by a bare name from the system's paths.
    ///
    /// # Errors
    ///
    /// When the file is no such library, or a version before 2.14.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let refused = |error: libloading::Error| LoadError::Open { path: path.into(), reason: error.to_string() };
        // SAFETY: initialisers of NVIDIA's library need nothing of this process. Which files are loaded is the user's
        // choice, by the system's paths and the variables that `find` documents.
        let library = unsafe { Library::new(path) }.map_err(refused)?;
        // Before the functions, some of which an old version lacks.
        // SAFETY: the signature is that of the library's header.
        let version = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion\0") };
        let mut found = 0;
        // SAFETY: the pointer is valid for one number.
        unsafe { (version.map_err(refused)?)(&raw mut found) };
        let version = usize::try_from(found).unwrap_or(0);
        if version < OLDEST {
            return Err(LoadError::Version { library: "NCCL", path: path.into(), found: version, oldest: OLDEST });
        }
        let functions = Functions::load(&library).map_err(refused)?;
        Ok(Self { functions, path: path.into(), version, _library: library })
    }

    /// Major version times 10,000, minor version times 100, and patch: 22,803 is version 2.28.3.
    pub fn version(&self) -> usize {
        self.version
    }

    /// The file that was loaded, or its bare name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a port of this host, by the library's own rules for interfaces. The ranks find each other there.
    ///
    /// # Errors
    ///
    /// When there is no interface for it.
    pub fn unique_id(&self) -> Result<UniqueId, NcclError> {
        let mut id = UniqueId([0; UniqueId::BYTES]);
        // SAFETY: the pointer is valid for one identifier.
        let status = unsafe { (self.functions.unique_id)(&raw mut id) };
        self.checked("ncclGetUniqueId", status).map(|_| id)
    }

    /// Begins to join a communicator with the device whose CUDA context is current. Its ranks sum once it
    /// [is ready](Communicator::is_ready).
    ///
    /// # Errors
    ///
    /// When the library cannot use the device, or counts fewer ranks.
    pub fn join(&'static self, id: UniqueId, rank: usize, ranks: usize) -> Result<Communicator, NcclError> {
        let counted = |count: usize| c_int::try_from(count).map_err(|_| NcclError::Rank { rank, ranks });
        let (number, count) = (counted(rank)?, counted(ranks)?);
        let version = OLDEST as u32;
        let mut config = Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version,
            blocking: 0,
            cga_cluster_size: c_int::MIN,
        };
        let mut object = null_mut();
        // SAFETY: the pointers are valid for one communicator, and for a configuration of the size that it states.
        let status = unsafe { (self.functions.join)(&raw mut object, count, id, number, &raw mut config) };
        let handle = (!object.is_null()).then_some(Handle(object));
        let communicator = Communicator { library: self, handle: Mutex::new(handle) };
        match self.checked("ncclCommInitRankConfig", status) {
            Ok(_) => Ok(communicator),
            Err(error) => {
                // The first failure is the one to report.
                let _ = communicator.abort();
                Err(error)
            }
        }
    }

    /// Returns false for a call that is still in progress.
    fn checked(&self, call: &'static str, status: c_int) -> Result<bool, NcclError> {
        match status {
            SUCCESS => Ok(true),
            IN_PROGRESS => Ok(false),
            status => Err(NcclError::Call { call, reason: self.reason(status) }),
        }
    }

    fn reason(&self, status: c_int) -> String {
        // SAFETY: any number is allowed, and no communicator.
        let texts = unsafe { [(self.functions.error_text)(status), (self.functions.last_error)(null_mut())] };
        let texts = texts.map(|text| {
            // SAFETY: the texts are the library's own, which stay, and end with NUL.
            if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
        });
        let [name, last] = texts.each_ref().map(|text| text.trim());
        if last.is_empty() { format!("{name} ({status})") } else { format!("{name} ({status}): {last}") }
    }
}

/// `ncclComm_t`.
struct Handle(Object);

// SAFETY: communicators have no ties to a thread; a mutex lets one thread at a time use the handle.
unsafe impl Send for Handle {}

/// A rank's membership of processes that sum.
///
/// It stays until it is aborted, or the process ends: NCCL frees a communicator on all ranks together only.
pub struct Communicator {
    library: &'static Nccl,
    /// `None` once it is aborted.
    handle: Mutex<Option<Handle>>,
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Communicator").field("library", self.library).finish_non_exhaustive()
    }
}

/// Time for which a call in progress is polled without a pause: NCCL launches a sum within some tens of microseconds.
const IMPATIENT: Duration = Duration::from_millis(1);
/// Pause between polls after that: NCCL connects to other processes.
const PAUSE: Duration = Duration::from_micros(200);

impl Communicator {
    /// Returns true if all begun calls are complete: all ranks have joined, and sums are on their streams.
    ///
    /// # Errors
    ///
    /// [`NcclError::Aborted`] after an abort, and [`NcclError::Call`] if a call in progress or the connection has failed.
    pub fn is_ready(&self) -> Result<bool, NcclError> {
        let handle = self.lock();
        let Some(Handle(object)) = &*handle else { return Err(NcclError::Aborted) };
        let mut status = SUCCESS;
        // SAFETY: the communicator lives while the lock is held, and the pointer is valid for one number.
        let called = unsafe { (self.library.functions.status)(*object, &raw mut status) };
        self.library.checked("ncclCommGetAsyncError", called)?;
        self.library.checked("a collective", status)
    }

    /// Sums numbers over all ranks, which pass equal types and counts in the same order. Returns once the sum is on the
    /// stream: it runs after what is there, and before what follows. Both memories may be the same.
    ///
    /// # Errors
    ///
    /// When numbers exceed a memory, the communicator is aborted, or the library fails. Nothing is launched then, but what an
    /// abort interrupted may have written.
    ///
    /// # Safety
    ///
    /// The memory belongs to the communicator's device and stays where it is until the sum has run or was aborted, `stream` is
    /// a `CUstream` of the device, and its context is current.
    pub unsafe fn sum(
        &self,
        read: Memory,
        written: Memory,
        number: Number,
        count: usize,
        stream: *mut c_void,
    ) -> Result<(), NcclError> {
        let needed = count.saturating_mul(number.bytes()) as u64;
        let found = read.bytes.min(written.bytes);
        if needed > found {
            return Err(NcclError::TooLarge { needed, found });
        }
        let is_launched = {
            let handle = self.lock();
            let Some(Handle(object)) = &*handle else { return Err(NcclError::Aborted) };
            // SAFETY: the communicator lives while the lock is held; sizes are checked above, and the rest is the caller's
            // promise.
            let status = unsafe {
                (self.library.functions.all_reduce)(
                    read.address as *const c_void,
                    written.address as *mut c_void,
                    count,
                    number.data_type(),
                    SUM,
                    *object,
                    stream,
                )
            };
            self.library.checked("ncclAllReduce", status)?
        };
        if is_launched { Ok(()) } else { self.wait() }
    }

    /// Waits until the calls in progress are complete.
    fn wait(&self) -> Result<(), NcclError> {
        let begin = Instant::now();
        while !self.is_ready()? {
            if begin.elapsed() < IMPATIENT { thread::yield_now() } else { thread::sleep(PAUSE) }
        }
        Ok(())
    }

    /// Ends what this rank waits for, on the host and on the device, and frees the communicator. Sums that were interrupted
    /// have any values.
    ///
    /// # Errors
    ///
    /// When the library fails.
    pub fn abort(&self) -> Result<(), NcclError> {
        let mut handle = self.lock();
        let Some(Handle(object)) = handle.take() else { return Ok(()) };
        // A thread in `sum` waits for the lock, so that memory is not reused before the library has let go of it.
        // SAFETY: the communicator lives. Taken from behind the lock, it is used by nobody else, and never again.
        let status = unsafe { (self.library.functions.abort)(object) };
        self.library.checked("ncclCommAbort", status).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Handle>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
