//! Calls of the library on CubeCL's CUDA streams, in order with its kernels.

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
    let made = DeviceHandle::<Server>::new(device)
        .submit_blocking(move |_| handle(device).and_then(|handle| handle.plan(product, alignment)))
        .unwrap_or_else(|failure| failure.resume());
    let made = match made {
        Ok(plan) => Some(Arc::new(plan)),
        Err(error) => {
            tracing::debug!(%error, ?product, "Burn's kernels compute this product");
            None
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

/// Launches a product in order with the device's kernels, with a bias to read or column sums to write. A failure marks
/// the output: reading it, or what is computed from it, is the error.
#[allow(clippy::default_trait_access, reason = "the type of backtraces is in a crate that is no dependency")]
pub(super) fn launch(client: &Client, launch: Launch, bias: Option<Buffer>, sums: Option<Buffer>) {
    let Launch { plan, left, right, output } = launch;
    let workspace = (plan.workspace_bytes() > 0).then(|| client.empty(plan.workspace_bytes()));
    // As CubeCL's own launches do, a dry run allocates and computes nothing.
    if launch_mode().is_skipped() {
        return;
    }
    DeviceHandle::<Server>::new(client.service_id().device).submit(move |server| {
        let stream = output.stream;
        let vector = bias.or_else(|| sums.clone());
        let written = || -> Vec<BufferBinding> {
            [Some(&output), sums.as_ref(), workspace.as_ref()]
                .into_iter()
                .flatten()
                .map(|buffer| buffer.clone().binding())
                .collect()
        };
        // Before the scope: within it the outputs count as not yet written, and reading their address would fail.
        let mut memory = |buffer: &Buffer| {
            let resource = server.get_resource(buffer.clone().binding(), stream)?;
            let resource = resource.resource();
            Ok::<_, ServerError>(Memory { address: resource.ptr, bytes: resource.size })
        };
        let operands = (|| {
            Ok(Operands {
                left: memory(&left)?,
                right: memory(&right)?,
                output: memory(&output)?,
                vector: vector.as_ref().map(&mut memory).transpose()?,
                workspace: workspace.as_ref().map(&mut memory).transpose()?,
            })
        })();
        let operands = match operands {
            Ok(operands) => operands,
            Err(error) => return failed_writing(server, stream, written(), error),
        };
        ExecuteScope::over(server, stream, written()).execute(|server| {
            let stream =
                server.write_streams().try_stream_mut(&stream).expect("BUG: the addresses were resolved on it");
            // SAFETY: the buffers were resolved on this device and its stream, which orders the product before all that
            // uses the memory later; CubeCL's thread has the device's context.
            unsafe { plan.launch(operands, stream.signal().cast()) }
                .map_err(|error| ServerError::Generic { reason: error.to_string(), backtrace: Default::default() })
        });
    });
}
