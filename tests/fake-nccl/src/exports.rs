//! NCCL's C functions.
//!
//! Every function is called under NCCL's contract: out-pointers are valid for writes, and buffers for as many numbers as
//! stated, until the sum is over or aborted. Communicators are numbers and checked.
#![allow(non_snake_case, reason = "the names are NCCL's")]

use std::collections::HashMap;
use std::env;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::SUMS_VARIABLE;
use crate::root::{self, Number};

/// A communicator: its address is a number.
type Opaque = *mut c_void;

// `ncclResult_t`
const SUCCESS: c_int = 0;
const SYSTEM: c_int = 2;
const INVALID_ARGUMENT: c_int = 4;
const INVALID_USAGE: c_int = 5;
const REMOTE: c_int = 6;
const IN_PROGRESS: c_int = 7;

/// Marks identifiers of this library.
const MARK: [u8; 4] = *b"fake";

#[repr(C)]
struct UniqueId([u8; 128]);

#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
}

#[derive(Default)]
struct Communicator {
    status: Arc<AtomicI32>,
    connection: Arc<Mutex<Option<TcpStream>>>,
    /// Join or sum in progress.
    work: Option<JoinHandle<()>>,
}

static COMMUNICATORS: Mutex<Option<HashMap<usize, Communicator>>> = Mutex::new(None);
static FAULT: Mutex<String> = Mutex::new(String::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_failing(name: &str) -> bool {
    *lock(&FAULT) == name
}

/// # Safety
/// `text` is a string.
#[unsafe(no_mangle)]
unsafe extern "C" fn fake_nccl_behave(text: *const c_char) {
    // SAFETY: by this function's contract.
    *lock(&FAULT) = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
}

/// # Safety
/// By NCCL's contract.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    let number = lock(&FAULT).strip_prefix("version=").map_or(22_803, |number| number.parse().expect("a version"));
    // SAFETY: by this function's contract.
    unsafe { version.write(number) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(status: c_int) -> *const c_char {
    match status {
        SYSTEM => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        INVALID_USAGE => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        REMOTE => c"remote process exited or there was a network error",
        _ => c"another error",
    }
    .as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_communicator: Opaque) -> *const c_char {
    if lock(&FAULT).is_empty() { c"".as_ptr() } else { c"of the fake\n".as_ptr() }
}

/// # Safety
/// By NCCL's contract.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    if is_failing("ncclGetUniqueId") {
        return SYSTEM;
    }
    let Ok(address) = root::open() else { return SYSTEM };
    let mut bytes = [0; 128];
    bytes[..4].copy_from_slice(&MARK);
    bytes[4..6].copy_from_slice(&address.port().to_le_bytes());
    // SAFETY: by this function's contract.
    unsafe { id.write(UniqueId(bytes)) };
    SUCCESS
}

/// # Safety
/// By NCCL's contract.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankConfig(
    communicator: *mut Opaque,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *mut Config,
) -> c_int {
    // SAFETY: by this function's contract.
    let Config { size, magic, version, blocking, cga_cluster_size } = unsafe { config.read() };
    let is_config = size == size_of::<Config>() && magic == 0xcafe_beef && version == 21_400;
    let is_set = blocking == 0 && cga_cluster_size == c_int::MIN;
    if !is_config || !is_set || id.0[..4] != MARK || !(0..ranks).contains(&rank) {
        return INVALID_ARGUMENT;
    }
    if is_failing("ncclCommInitRankConfig") {
        return SYSTEM;
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::from_le_bytes([id.0[4], id.0[5]])));
    let mut new = Communicator::default();
    new.begin(move |connection| {
        let mut joined = root::join(address, rank.cast_unsigned(), ranks.cast_unsigned())?;
        *lock(connection) = Some(joined.try_clone()?);
        joined.read_exact(&mut [0])
    });
    let mut communicators = lock(&COMMUNICATORS);
    let communicators = communicators.get_or_insert_default();
    let number = communicators.len() + 1;
    communicators.insert(number, new);
    // SAFETY: by this function's contract.
    unsafe { communicator.write(ptr::without_provenance_mut(number)) };
    IN_PROGRESS
}

impl Communicator {
    /// Works in a thread.
    fn begin(&mut self, work: impl FnOnce(&Mutex<Option<TcpStream>>) -> io::Result<()> + Send + 'static) {
        self.status.store(IN_PROGRESS, Ordering::SeqCst);
        let (status, connection) = (Arc::clone(&self.status), Arc::clone(&self.connection));
        self.work = Some(thread::spawn(move || {
            let result = work(&connection);
            status.store(if result.is_ok() { SUCCESS } else { REMOTE }, Ordering::SeqCst);
        }));
    }
}

/// # Safety
/// By NCCL's contract.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(communicator: Opaque, status: *mut c_int) -> c_int {
    let communicators = lock(&COMMUNICATORS);
    let Some(found) = communicators.as_ref().and_then(|all| all.get(&communicator.addr())) else {
        return INVALID_ARGUMENT;
    };
    let current = if is_failing("connection") { REMOTE } else { found.status.load(Ordering::SeqCst) };
    // SAFETY: by this function's contract.
    unsafe { status.write(current) };
    SUCCESS
}

/// Appends a line for a begun sum to the file of the environment variable.
fn log(length: usize) {
    if let Some(path) = env::var_os(SUMS_VARIABLE) {
        let file = File::options().append(true).create(true).open(path);
        file.and_then(|mut file| writeln!(file, "{length}")).expect("a file");
    }
}

/// Memory of a sum, which its thread uses.
struct Buffers(*const u8, *mut u8);

// SAFETY: by NCCL's contract, the memory is the sum's until it is over.
unsafe impl Send for Buffers {}

/// # Safety
/// By NCCL's contract.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllReduce(
    read: *const c_void,
    written: *mut c_void,
    count: usize,
    data_type: c_int,
    operation: c_int,
    communicator: Opaque,
    _stream: Opaque,
) -> c_int {
    let mut communicators = lock(&COMMUNICATORS);
    let Some(found) = communicators.as_mut().and_then(|all| all.get_mut(&communicator.addr())) else {
        return INVALID_ARGUMENT;
    };
    let data_type = u8::try_from(data_type).unwrap_or_default();
    let (Some(number), 0) = (Number::new(data_type), operation) else { return INVALID_ARGUMENT };
    if found.status.load(Ordering::SeqCst) != SUCCESS || is_failing("ncclAllReduce") {
        return INVALID_USAGE;
    }
    let buffers = Buffers(read.cast(), written.cast());
    let length = count * number.bytes();
    log(length);
    found.begin(move |connection| {
        let Buffers(read, written) = { buffers };
        // SAFETY: by this function's contract.
        let mut bytes = unsafe { std::slice::from_raw_parts(read, length) }.to_vec();
        let connection = lock(connection).as_ref().map(TcpStream::try_clone);
        root::exchange(&mut connection.expect("a rank that has joined")?, data_type, &mut bytes)?;
        // SAFETY: by this function's contract.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), written, length) };
        Ok(())
    });
    IN_PROGRESS
}

/// # Safety
/// By NCCL's contract.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommAbort(communicator: Opaque) -> c_int {
    let found = lock(&COMMUNICATORS).as_mut().and_then(|all| all.remove(&communicator.addr()));
    let Some(found) = found else { return INVALID_ARGUMENT };
    // A join waits in a read that its connection ends, too.
    while found.work.as_ref().is_some_and(|work| !work.is_finished()) {
        if let Some(connection) = &*lock(&found.connection) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        thread::yield_now();
    }
    SUCCESS
}
