//! Calls of the libraries on CubeCL's CUDA streams, in order with its kernels.

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error;
use std::ffi::c_void;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

use super::second_stream::SecondStream;
use crate::attention::Attention;
use crate::convolution::{Convolution, Layout};
use crate::cublaslt::{CublasError, Element, Handle, Memory, Operands, Plan, Product};
use crate::cudnn::{self, AttentionPlan, CudnnError, Pass, RecurrentPlan};
use crate::nccl::{Communicator, Number};
use crate::recurrence::Recurrence;
use crate::selection;

type Server = <CudaRuntime as Runtime>::Server;

/// Most plans in memory: many times what the layers of a model need. Then the plans are made again.
const MOST_PLANS: usize = 4096;

/// Plans by what they compute. `None` where the library has no algorithm.
struct Plans<K, P>(Mutex<Option<Made<K, P>>>);

type Made<K, P> = HashMap<(DeviceId, K), Option<Arc<P>>>;

impl<K: Clone + Eq + Hash, P> Plans<K, P> {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The plan for a device, made at its first call. A failure of a call is not for good: the next call tries again.
    fn get_or_make<E: Error>(
        &self,
        device: DeviceId,
        key: &K,
        make: impl FnOnce() -> Result<Option<P>, E>,
    ) -> Option<Arc<P>> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (device, key.clone());
        let known = lock().as_ref().and_then(|plans| plans.get(&key).cloned());
        if let Some(known) = known {
            return known;
        }
        let made = match make() {
            Ok(made) => made.map(Arc::new),
            Err(error) => {
                tracing::warn!(%error, "Burn's kernels compute this operation");
                return None;
            }
        };
        let mut plans = lock();
        let plans = plans.get_or_insert_default();
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        plans.insert(key, made.clone());
        made
    }
}

/// A handle for each device, made at its first call on the thread of the device.
struct Handles<H: 'static>(Mutex<Vec<(DeviceId, &'static H)>>);

impl<H> Handles<H> {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn get_or_make<E>(&self, device: DeviceId, make: impl FnOnce() -> Result<H, E>) -> Result<&'static H, E> {
        let mut handles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, handle)) = handles.iter().find(|(known, _)| *known == device) {
            return Ok(handle);
        }
        let handle: &'static H = Box::leak(Box::new(make()?));
        handles.push((device, handle));
        Ok(handle)
    }
}

static PRODUCTS: Plans<(Product, [u64; 3]), Plan> = Plans::new();
/// By convolution, pass, and whether it has to be deterministic.
static CONVOLUTIONS: Plans<(Convolution, Pass, bool), cudnn::Plan> = Plans::new();
static CHANNEL_SUMS: Plans<Layout, cudnn::ChannelSums> = Plans::new();
static BATCH_NORMS: Plans<(Element, Layout), cudnn::BatchNorm> = Plans::new();
static RECURRENCES: Plans<Recurrence, RecurrentPlan> = Plans::new();
/// By attention, and whether the plan is of its gradients.
static ATTENTIONS: Plans<(Attention, bool), AttentionPlan> = Plans::new();
static CUBLASLT: Handles<Handle> = Handles::new();
static CUDNN: Handles<cudnn::Handle> = Handles::new();
/// Products of this process that the library computes.
static PLANNED: AtomicUsize = AtomicUsize::new(0);
/// Calls of cuDNN by this process.
static CUDNN_CALLS: AtomicUsize = AtomicUsize::new(0);
/// Passes that cuDNN was to compute, and Burn did.
static LEFT_TO_BURN: AtomicUsize = AtomicUsize::new(0);
/// Reasons of cuDNN for not planning an operation, for the check at start and for tests on a GPU.
static REASONS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Most reasons in memory.
const MOST_REASONS: usize = 16;

pub(super) fn planned() -> usize {
    PLANNED.load(Ordering::Relaxed)
}

pub(super) fn cudnn_calls() -> usize {
    CUDNN_CALLS.load(Ordering::Relaxed)
}

pub(super) fn left_to_burn() -> usize {
    LEFT_TO_BURN.load(Ordering::Relaxed)
}

/// Counts a pass that cuDNN was to compute, and Burn does.
pub(super) fn leave_to_burn() {
    LEFT_TO_BURN.fetch_add(1, Ordering::Relaxed);
}

/// The reasons since the last call.
pub(super) fn take_reasons() -> Vec<String> {
    std::mem::take(&mut *REASONS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The plan of a product on a device. `None` where Burn has to compute it.
pub(super) fn plan(device: DeviceId, product: Product, alignment: [u64; 3]) -> Option<Arc<Plan>> {
    let plan = PRODUCTS.get_or_make(device, &(product, alignment), || {
        let made = on_device(device, move || {
            let library = selection::library().ok_or(CublasError::NoAlgorithm)?;
            CUBLASLT.get_or_make(device, || Handle::new(library))?.plan(product, alignment)
        });
        match made {
            Ok(plan) => Ok(Some(plan)),
            Err(CublasError::NoAlgorithm) => {
                tracing::debug!(?product, "Burn's kernels compute this product: cuBLASLt has no algorithm");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    });
    PLANNED.fetch_add(usize::from(plan.is_some()), Ordering::Relaxed);
    plan
}

/// The plan of a pass of a convolution on a device. `None` where the library has no algorithm for the layouts.
pub(super) fn plan_convolution(device: DeviceId, convolution: Convolution, pass: Pass) -> Option<Arc<cudnn::Plan>> {
    let key = (convolution, pass, selection::is_deterministic());
    CONVOLUTIONS.get_or_make(device, &key, || {
        let (convolution, pass, is_deterministic) = key.clone();
        let made = on_device(device, move || cudnn_handle(device)?.plan(convolution, pass, is_deterministic));
        or_no_algorithm(made, &key)
    })
}

/// The plan of sums of channels in f32 on a device. `None` where Burn has to compute them.
pub(super) fn plan_sums(device: DeviceId, tensor: &Layout) -> Option<Arc<cudnn::ChannelSums>> {
    CHANNEL_SUMS.get_or_make(device, tensor, || {
        let layout = tensor.clone();
        let made = on_device(device, move || cudnn_handle(device)?.plan_sums(layout));
        or_no_algorithm(made, tensor)
    })
}

/// The plan of a recurrent layer on a device. `None` where Burn has to compute it.
pub(super) fn plan_recurrence(device: DeviceId, recurrence: &Recurrence) -> Option<Arc<RecurrentPlan>> {
    RECURRENCES.get_or_make(device, recurrence, || {
        let key = recurrence.clone();
        let made = on_device(device, move || cudnn_handle(device)?.plan_recurrence(key));
        or_no_algorithm(made, recurrence)
    })
}

/// The plan of attention or of its gradients on a device. `None` where the library computes no such attention.
pub(super) fn plan_attention(device: DeviceId, attention: &Attention, is_backward: bool) -> Option<Arc<AttentionPlan>> {
    let key = (attention.clone(), is_backward);
    ATTENTIONS.get_or_make(device, &key, || {
        let (attention, _) = key.clone();
        let made = on_device(device, move || {
            let handle = cudnn_handle(device)?;
            if is_backward { handle.plan_attention_gradients(attention) } else { handle.plan_attention(attention) }
        });
        or_no_algorithm(made, &key)
    })
}

fn or_no_algorithm<P>(made: Result<P, CudnnError>, key: &impl Debug) -> Result<Option<P>, CudnnError> {
    let error = match made {
        Ok(plan) => return Ok(Some(plan)),
        Err(error) => error,
    };
    let mut reasons = REASONS.lock().unwrap_or_else(PoisonError::into_inner);
    if reasons.len() < MOST_REASONS {
        reasons.push(format!("{error} for {key:?}"));
    }
    match error {
        // Arguments that the library refuses or does not support now, it never does.
        CudnnError::NoAlgorithm(_) | CudnnError::Call { status: 2000..4000, .. } => {
            tracing::debug!(%error, ?key, "Burn's kernels compute this operation");
            Ok(None)
        }
        error => Err(error),
    }
}

fn cudnn_handle(device: DeviceId) -> Result<&'static cudnn::Handle, CudnnError> {
    let library = selection::cudnn().ok_or_else(|| CudnnError::NoAlgorithm("the library is not loaded".into()))?;
    CUDNN.get_or_make(device, || cudnn::Handle::new(library))
}

/// Runs on the thread of a device, which has its context.
pub(super) fn on_device<T: Send + 'static>(device: DeviceId, work: impl FnOnce() -> T + Send + 'static) -> T {
    server_of(device).submit_blocking(move |_| work()).unwrap_or_else(|failure| failure.resume())
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

/// A planned product of buffers.
pub(super) struct Launch {
    pub plan: Arc<Plan>,
    pub left: Buffer,
    pub right: Buffer,
    pub output: Buffer,
}

/// Launches a product in order with the device's kernels, with a bias to read, or column sums or the input of an
/// activation to write.
pub(super) fn launch(
    client: &Client,
    launch: Launch,
    bias: Option<Buffer>,
    sums: Option<Buffer>,
    pre_activation: Option<Buffer>,
) {
    let Launch { plan, left, right, output } = launch;
    let workspace_bytes = plan.workspace_bytes();
    let has_sums = sums.is_some();
    let read = [left, right].into_iter().chain(bias).collect();
    let written = [output].into_iter().chain(sums).chain(pre_activation).collect();
    call(client, read, written, workspace_bytes, move |Call { read, written, workspace, stream }| {
        let mut written = written.into_iter();
        let operands = Operands {
            left: read[0],
            right: read[1],
            output: written.next().expect("the output is written"),
            vector: if has_sums { written.next() } else { read.get(2).copied() },
            pre_activation: written.next(),
            workspace,
        };
        // SAFETY: as `call` promises.
        unsafe { plan.launch(operands, stream) }.map_err(|error| error.to_string())
    });
}

/// Launches a pass of a convolution in order with the device's kernels.
pub(super) fn convolve(client: &Client, plan: Arc<cudnn::Plan>, pass: Pass, read: [Buffer; 2], result: Buffer) {
    CUDNN_CALLS.fetch_add(1, Ordering::Relaxed);
    let workspace_bytes = plan.workspace_bytes();
    call(client, read.into(), vec![result], workspace_bytes, move |Call { read, written, workspace, stream }| {
        let (input, weight, output) = match pass {
            Pass::Forward => (read[0], read[1], written[0]),
            Pass::Input => (written[0], read[0], read[1]),
            Pass::Weight => (read[0], written[0], read[1]),
        };
        // SAFETY: as `call` promises.
        unsafe { plan.launch(cudnn::Operands { input, weight, output, workspace }, stream) }
            .map_err(|error| format!("{error}: {}", plan.description()))
    });
}

/// Launches sums of channels in order with the device's kernels.
pub(super) fn sum_channels(client: &Client, plan: Arc<cudnn::ChannelSums>, tensor: Buffer, sums: Buffer) {
    CUDNN_CALLS.fetch_add(1, Ordering::Relaxed);
    call(client, vec![tensor], vec![sums], 0, move |Call { read, written, stream, .. }| {
        // SAFETY: as `call` promises.
        unsafe { plan.launch(read[0], written[0], stream) }.map_err(|error| error.to_string())
    });
}

/// Launches a batch norm in order with the device's kernels.
pub(super) fn batch_norm(
    client: &Client,
    key: (Element, Layout),
    read: [Buffer; 3],
    written: [Buffer; 5],
    epsilon: f64,
) {
    CUDNN_CALLS.fetch_add(1, Ordering::Relaxed);
    let device = client.service_id().device;
    call(client, read.into(), written.into(), 0, move |Call { read, written, stream, .. }| {
        let memory = cudnn::Normalised {
            input: read[0],
            gamma: read[1],
            beta: read[2],
            output: written[0],
            mean: written[1],
            variance: written[2],
            saved_mean: written[3],
            deviation: written[4],
        };
        // SAFETY: as `call` promises.
        unsafe { norm_of(device, &key)?.launch(memory, epsilon, stream) }.map_err(|error| format!("{error}: {key:?}"))
    });
}

/// Launches gradients of a batch norm in order with the device's kernels.
pub(super) fn batch_norm_gradients(
    client: &Client,
    key: (Element, Layout),
    read: [Buffer; 5],
    written: [Buffer; 3],
    epsilon: f64,
) {
    CUDNN_CALLS.fetch_add(1, Ordering::Relaxed);
    let device = client.service_id().device;
    call(client, read.into(), written.into(), 0, move |Call { read, written, stream, .. }| {
        let memory = cudnn::NormalisedGradients {
            input: read[0],
            gamma: read[1],
            gradient: read[2],
            saved_mean: read[3],
            deviation: read[4],
            of_input: written[0],
            of_gamma: written[1],
            of_beta: written[2],
        };
        // SAFETY: as `call` promises.
        unsafe { norm_of(device, &key)?.launch_gradients(memory, epsilon, stream) }
            .map_err(|error| format!("{error}: {key:?}"))
    });
}

/// The description of a batch norm, on the thread of the device.
fn norm_of(device: DeviceId, key: &(Element, Layout)) -> Result<Arc<cudnn::BatchNorm>, String> {
    let (element, tensor) = key.clone();
    let mut failure = None;
    let norm = BATCH_NORMS.get_or_make(device, key, || {
        let made = cudnn_handle(device).and_then(|handle| handle.plan_batch_norm(element, tensor));
        made.map(Some).inspect_err(|error| failure = Some(error.to_string()))
    });
    norm.ok_or_else(|| failure.unwrap_or_else(|| "cuDNN does not describe this batch norm".to_owned()))
}

/// Launches a recurrent layer in order with the device's kernels. With a reserve, it is kept for the gradients.
pub(super) fn recur(
    client: &Client,
    plan: Arc<RecurrentPlan>,
    read: [Buffer; 3],
    output: Buffer,
    reserve: Option<Buffer>,
) {
    CUDNN_CALLS.fetch_add(1, Ordering::Relaxed);
    let workspace_bytes = plan.workspace_bytes(reserve.is_some());
    let written = [output].into_iter().chain(reserve).collect();
    call(client, read.into(), written, workspace_bytes, move |Call { read, written, workspace, stream }| {
        let memory = cudnn::Recurrent {
            input: read[0],
            weights: read[1],
            states: read[2],
            output: written[0],
            reserve: written.get(1).copied(),
            workspace,
        };
        // SAFETY: as `call` promises.
        unsafe { plan.launch(memory, stream) }.map_err(|error| error.to_string())
    });
}

/// Launches gradients of a recurrent layer in order with the device's kernels.
pub(super) fn recurrent_gradients(client: &Client, plan: Arc<RecurrentPlan>, read: [Buffer; 5], written: [Buffer; 4]) {
    CUDNN_CALLS.fetch_add(1, Ordering::Relaxed);
    let workspace_bytes = plan.workspace_bytes(true);
    call(client, read.into(), written.into(), workspace_bytes, move |Call { read, written, workspace, stream }| {
        let memory = cudnn::RecurrentGradients {
            input: read[0],
            weights: read[1],
            states: read[2],
            output: read[3],
            gradient: read[4],
            of_input: written[0],
            of_weights: written[1],
            of_states: written[2],
            reserve: written[3],
            workspace,
        };
        // SAFETY: as `call` promises.
        unsafe { plan.launch_gradients(memory, stream) }.map_err(|error| error.to_string())
    });
}

/// Sums numbers of a type over ranks, in order with the device's kernels. Without memory to read, it is in place.
///
/// NCCL's kernel runs on the stream of the sum. The call returns to the thread of the device once the kernel is there, so
/// that what follows on the stream is behind it.
pub(super) fn sum_over_ranks(
    client: &Client,
    communicator: Arc<Communicator>,
    read: Option<Buffer>,
    sum: Buffer,
    (number, count): (Number, usize),
) {
    call(client, read.into_iter().collect(), vec![sum], 0, move |Call { read, written, stream, .. }| {
        let read = read.first().copied().unwrap_or(written[0]);
        // SAFETY: as `call` promises.
        unsafe { communicator.sum(read, written[0], number, count, stream) }.map_err(|error| error.to_string())
    });
}

/// Sums of a step beside the device's kernels, on a stream that all steps of a communicator share.
#[derive(Debug)]
pub struct PendingSums {
    communicator: Arc<Communicator>,
    stream: SharedStream,
    /// Sums that NCCL has begun: those before this number.
    begun: AtomicUsize,
    /// Memory of the sums that have not ended, by their number. CubeCL moves memory that has no binding, and reuses memory that
    /// has no buffer.
    in_use: Mutex<Vec<(usize, Buffer, BufferBinding)>>,
}

/// The second stream of a device, made by the first sum.
#[derive(Clone, Debug, Default)]
pub struct SharedStream(Arc<Mutex<Option<SecondStream>>>);

impl PendingSums {
    pub(crate) fn new(communicator: Arc<Communicator>, stream: SharedStream) -> Self {
        Self { communicator, stream, begun: AtomicUsize::new(0), in_use: Mutex::new(Vec::new()) }
    }

    /// Number of sums that NCCL has begun.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::Acquire)
    }

    /// Calls with the second stream, on the thread of the device.
    fn with_stream(&self, work: impl FnOnce(&SecondStream) -> Result<(), Box<dyn Error>>) -> Result<(), String> {
        let mut stream = self.stream.0.lock().unwrap_or_else(PoisonError::into_inner);
        let run = || {
            if stream.is_none() {
                *stream = Some(SecondStream::new()?);
            }
            work(stream.as_ref().expect("it was made"))
        };
        run().map_err(|error| error.to_string())
    }

    fn in_use(&self) -> MutexGuard<'_, Vec<(usize, Buffer, BufferBinding)>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingSums {
    /// NCCL may still write the memory of sums that were left: it stays allocated. Ranks that have ended leave sums.
    fn drop(&mut self) {
        std::mem::take(&mut *self.in_use()).into_iter().for_each(std::mem::forget);
    }
}

/// Begins the sum that is number `index` beside the device's kernels, behind those before it. Without memory to read, it is in
/// place. A sum behind one that could not be begun fails, so that ranks begin equal sums in equal order.
pub(super) fn begin_sum(
    client: &Client,
    sums: Arc<PendingSums>,
    read: Option<Buffer>,
    sum: Buffer,
    (number, count): (Number, usize),
    index: usize,
) {
    let in_use = [Some(sum.clone()), read.clone()];
    call(client, read.into_iter().collect(), vec![sum], 0, move |Call { read, written, stream, .. }| {
        let begun = sums.begun();
        if begun != index {
            return Err(format!("sum {begun} of the ranks comes before sum {index}"));
        }
        let read = read.first().copied().unwrap_or(written[0]);
        // Before the call: NCCL may have begun even where it reports an error.
        let kept = in_use.into_iter().flatten().map(|buffer| (index, buffer.clone(), buffer.binding()));
        sums.in_use().extend(kept);
        sums.with_stream(|second| {
            // SAFETY: the stream is of this device, as is the second one, which was made on its thread. Memory stays where it is
            // until the sum has ended.
            unsafe {
                second.follow(stream)?;
                if count > 0 {
                    sums.communicator.sum(read, written[0], number, count, second.handle())?;
                }
            }
            Ok(())
        })?;
        sums.begun.store(index + 1, Ordering::Release);
        Ok(())
    });
}

/// Orders what uses a sum later behind it.
pub(super) fn end_sum(client: &Client, sums: Arc<PendingSums>, sum: Buffer, index: usize) {
    call(client, Vec::new(), vec![sum], 0, move |Call { stream, .. }| {
        // SAFETY: as in `begin_sum`.
        sums.with_stream(|second| Ok(unsafe { second.precede(stream) }?))?;
        sums.in_use().retain(|(of, ..)| *of != index);
        Ok(())
    });
}

/// Launches attention in order with the device's kernels. With biases they follow query, key and value.
pub(super) fn attend(client: &Client, plan: Arc<AttentionPlan>, read: Vec<Buffer>, written: [Buffer; 2], scale: f32) {
    CUDNN_CALLS.fetch_add(1, Ordering::Relaxed);
    let workspace_bytes = plan.workspace_bytes();
    call(client, read, written.into(), workspace_bytes, move |Call { read, written, workspace, stream }| {
        let memory = cudnn::Attended {
            query: read[0],
            key: read[1],
            value: read[2],
            bias: read.get(3).copied(),
            output: written[0],
            statistics: written[1],
            workspace,
        };
        // SAFETY: as `call` promises.
        unsafe { plan.launch(memory, scale, stream) }.map_err(|error| error.to_string())
    });
}

/// Launches gradients of attention in order with the device's kernels. Query, key and value are followed by output,
/// statistics, the output's gradient and biases.
pub(super) fn attention_gradients(
    client: &Client,
    plan: Arc<AttentionPlan>,
    read: Vec<Buffer>,
    written: [Buffer; 3],
    scale: f32,
) {
    CUDNN_CALLS.fetch_add(1, Ordering::Relaxed);
    let workspace_bytes = plan.workspace_bytes();
    call(client, read, written.into(), workspace_bytes, move |Call { read, written, workspace, stream }| {
        let forward = cudnn::Attended {
            query: read[0],
            key: read[1],
            value: read[2],
            bias: read.get(6).copied(),
            output: read[3],
            statistics: read[4],
            workspace,
        };
        let memory = cudnn::AttendedGradients {
            forward,
            gradient: read[5],
            of_query: written[0],
            of_key: written[1],
            of_value: written[2],
        };
        // SAFETY: as `call` promises.
        unsafe { plan.launch_gradients(memory, scale, stream) }.map_err(|error| error.to_string())
    });
}

/// Memory of a call on the device, in the order of its buffers, and the CUDA stream.
struct Call {
    read: Vec<Memory>,
    written: Vec<Memory>,
    workspace: Option<Memory>,
    stream: *mut c_void,
}

/// Calls a library in order with the device's kernels. A failure marks the results: reading them, or what is computed from
/// them, is the error.
///
/// The call is made on the thread of the device, which has its context. The memory belongs to the device, and its stream
/// orders the call before all that uses the memory later.
///
/// # Panics
///
/// Panics if the buffers are on several devices.
#[allow(clippy::default_trait_access, reason = "the type of backtraces is in a crate that is no dependency")]
fn call(
    client: &Client,
    read: Vec<Buffer>,
    written: Vec<Buffer>,
    workspace_bytes: usize,
    launch: impl FnOnce(Call) -> Result<(), String> + Send + 'static,
) {
    let workspace = (workspace_bytes > 0).then(|| client.empty(workspace_bytes));
    assert!(
        read.iter().all(|buffer| buffer.service == client.service_id()),
        "the tensors of an operation are on several devices"
    );
    // As CubeCL's own launches do, a dry run allocates and computes nothing.
    if launch_mode().is_skipped() {
        return;
    }
    server_of(client.service_id().device).submit(move |server| {
        let stream = written[0].stream;
        let results: Vec<BufferBinding> = written.iter().chain(&workspace).map(binding).collect();
        // Guards of the pages, until the call is made.
        let mut guards = Vec::new();
        // Before the scope: within it the results count as not yet written, and reading their address would fail.
        let mut memory = |buffer: &Buffer| {
            let guard = server.get_resource(binding(buffer), stream)?;
            let memory = Memory { address: guard.resource().ptr, bytes: guard.resource().size };
            guards.push(guard);
            Ok::<_, ServerError>(memory)
        };
        let resolved = (|| {
            Ok((
                read.iter().map(&mut memory).collect::<Result<Vec<_>, _>>()?,
                written.iter().map(&mut memory).collect::<Result<Vec<_>, _>>()?,
                workspace.as_ref().map(&mut memory).transpose()?,
            ))
        })();
        let (of_read, of_written, of_workspace) = match resolved {
            Ok(resolved) => resolved,
            Err(error) => return failed_writing(server, stream, results, error),
        };
        let touched: Vec<BufferBinding> = read.iter().map(binding).chain(results.iter().cloned()).collect();
        ExecuteScope::over(server, stream, results).execute(|server| {
            // A CUDA graph replays at these addresses: its pages stay until the graph ends.
            if let Some(capture) = server.capturing(stream) {
                for binding in touched {
                    capture.touch(binding.stream, binding.memory.descriptor().location());
                }
            }
            let stream =
                server.write_streams().try_stream_mut(&stream).expect("BUG: the addresses were resolved on it");
            let stream = stream.signal().cast();
            launch(Call { read: of_read, written: of_written, workspace: of_workspace, stream })
                .map_err(|reason| ServerError::Generic { reason, backtrace: Default::default() })
        });
        // Resolved again, memory of another stream is released behind the call, not behind the first resolution. A layer's
        // forward pass on another stream wrote what the gradients overwrite.
        for buffer in read.iter().chain(&written).filter(|buffer| buffer.stream != stream) {
            drop(server.get_resource(binding(buffer), stream));
        }
    });
}

fn binding(buffer: &Buffer) -> BufferBinding {
    buffer.clone().binding()
}
