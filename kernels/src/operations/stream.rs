//! Calls of the library on CubeCL's CUDA streams, in order with its kernels.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cubecl::client::Client;
use cubecl::cuda::CudaRuntime;
use cubecl::server::{BufferBinding, Handle as Buffer};
use cubecl_common::device::DeviceId;
use cubecl_common::device_handle::DeviceHandle;
use cubecl_runtime::dry_run::launch_mode;
use cubecl_runtime::runtime::Runtime;
use cubecl_runtime::server::{ServerError, ServerStorage};
use cubecl_server::command::DeviceStream;
use cubecl_server::stream::{ExecuteScope, WriteScoped, failed_writing};

use crate::cublaslt::{CublasError, Handle, Memory, Operands, Plan, Product};
use crate::selection;

type Server = <CudaRuntime as Runtime>::Server;

/// Most plans in memory: many times what the layers of a model need. Then the plans are made again.
const MOST_PLANS: usize = 4096;

type Key = (DeviceId, Product, [u64; 3]);

/// `None` where the library has no algorithm.
static PLANS: Mutex<Option<HashMap<Key, Option<Arc<Plan>>>>> = Mutex::new(None);
/// Products of this process that the library computes.
static PLANNED: AtomicUsize = AtomicUsize::new(0);
static HANDLES: Mutex<Vec<(DeviceId, &'static Handle)>> = Mutex::new(Vec::new());

pub(super) fn planned() -> usize {
    PLANNED.load(Ordering::Relaxed)
}

/// The plan of a product on a device, made at its first call. `None` where Burn has to compute it.
pub(super) fn plan(device: DeviceId, product: Product, alignment: [u64; 3]) -> Option<Arc<Plan>> {
    let plan = known_or_made(device, product, alignment);
    PLANNED.fetch_add(usize::from(plan.is_some()), Ordering::Relaxed);
    plan
}

fn known_or_made(device: DeviceId, product: Product, alignment: [u64; 3]) -> Option<Arc<Plan>> {
    let key = (device, product, alignment);
    let known =
        PLANS.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|plans| plans.get(&key).cloned());
    if let Some(known) = known {
        return known;
    }
    // The thread of the device has its context.
    let made = server_of(device)
        .submit_blocking(move |_| handle(device).and_then(|handle| handle.plan(product, alignment)))
        .unwrap_or_else(|failure| failure.resume());
    let made = match made {
        Ok(plan) => Some(Arc::new(plan)),
        Err(CublasError::NoAlgorithm) => {
            tracing::debug!(?product, "Burn's kernels compute this product: cuBLASLt has no algorithm");
            None
        }
        // Not for good: the next call tries again.
        Err(error) => {
            tracing::warn!(%error, "Burn's kernels compute this product");
            return None;
        }
    };
    let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    let plans = plans.get_or_insert_default();
    if plans.len() >= MOST_PLANS {
        plans.clear();
    }
    plans.insert(key, made.clone());
    made
}

/// CubeCL's server of a device. A new handle waits while another device is opened, so each thread keeps its own.
fn server_of(device: DeviceId) -> DeviceHandle<Server> {
    thread_local! {
        static SERVERS: RefCell<Vec<(DeviceId, DeviceHandle<Server>)>> = const { RefCell::new(Vec::new()) };
    }
    SERVERS.with_borrow_mut(|servers| {
        if let Some((_, server)) = servers.iter().find(|(known, _)| *known == device) {
            return server.clone();
        }
        let server = DeviceHandle::new(device);
        servers.push((device, server.clone()));
        server
    })
}

fn handle(device: DeviceId) -> Result<&'static Handle, CublasError> {
    let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, handle)) = handles.iter().find(|(known, _)| *known == device) {
        return Ok(handle);
    }
    let library = selection::library().ok_or(CublasError::NoAlgorithm)?;
    let handle: &'static Handle = Box::leak(Box::new(Handle::new(library)?));
    handles.push((device, handle));
    Ok(handle)
}

/// A planned product of buffers.
pub(super) struct Launch {
    pub plan: Arc<Plan>,
    pub left: Buffer,
    pub right: Buffer,
    pub output: Buffer,
}

/// Launches a product in order with the device's kernels, with a bias to read, or column sums or the input of an
/// activation to write. A failure marks the outputs: reading them, or what is computed from them, is the error.
///
/// # Panics
///
/// Panics if the buffers are on several devices.
#[allow(clippy::default_trait_access, reason = "the type of backtraces is in a crate that is no dependency")]
pub(super) fn launch(
    client: &Client,
    launch: Launch,
    bias: Option<Buffer>,
    sums: Option<Buffer>,
    pre_activation: Option<Buffer>,
) {
    let Launch { plan, left, right, output } = launch;
    let workspace = (plan.workspace_bytes() > 0).then(|| client.empty(plan.workspace_bytes()));
    let read: Vec<Buffer> = [left.clone(), right.clone()].into_iter().chain(bias.clone()).collect();
    assert!(
        read.iter().all(|buffer| buffer.service == client.service_id()),
        "the tensors of a product are on several devices"
    );
    // As CubeCL's own launches do, a dry run allocates and computes nothing.
    if launch_mode().is_skipped() {
        return;
    }
    server_of(client.service_id().device).submit(move |server| {
        let stream = output.stream;
        let written = [Some(&output), sums.as_ref(), pre_activation.as_ref(), workspace.as_ref()];
        let written: Vec<BufferBinding> = written.into_iter().flatten().map(binding).collect();
        // Guards of the pages, until the product is launched.
        let mut guards = Vec::new();
        // Before the scope: within it the outputs count as not yet written, and reading their address would fail.
        let mut memory = |buffer: &Buffer| {
            let guard = server.get_resource(binding(buffer), stream)?;
            let memory = Memory { address: guard.resource().ptr, bytes: guard.resource().size };
            guards.push(guard);
            Ok::<_, ServerError>(memory)
        };
        let vector = bias.as_ref().or(sums.as_ref());
        let operands = (|| {
            Ok(Operands {
                left: memory(&left)?,
                right: memory(&right)?,
                output: memory(&output)?,
                vector: vector.map(&mut memory).transpose()?,
                pre_activation: pre_activation.as_ref().map(&mut memory).transpose()?,
                workspace: workspace.as_ref().map(&mut memory).transpose()?,
            })
        })();
        let operands = match operands {
            Ok(operands) => operands,
            Err(error) => return failed_writing(server, stream, written, error),
        };
        let touched: Vec<BufferBinding> = read.iter().map(binding).chain(written.iter().cloned()).collect();
        ExecuteScope::over(server, stream, written).execute(|server| {
            // A CUDA graph replays at these addresses: its pages stay until the graph ends.
            if let Some(capture) = server.capturing(stream) {
                for binding in touched {
                    capture.touch(binding.stream, binding.memory.descriptor().location());
                }
            }
            let stream =
                server.write_streams().try_stream_mut(&stream).expect("BUG: the addresses were resolved on it");
            // SAFETY: the buffers were resolved on this device and its stream, which orders the product before all that
            // uses the memory later; CubeCL's thread has the device's context.
            unsafe { plan.launch(operands, stream.signal().cast()) }
                .map_err(|error| ServerError::Generic { reason: error.to_string(), backtrace: Default::default() })
        });
        // Resolved again, memory of another stream is released behind the product, not behind the first resolution.
        for buffer in read.iter().filter(|buffer| buffer.stream != stream) {
            drop(server.get_resource(binding(buffer), stream));
        }
    });
}

fn binding(buffer: &Buffer) -> BufferBinding {
    buffer.clone().binding()
}
