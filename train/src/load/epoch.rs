//! Pass over the data: from the source through workers and the uploader to the consumer.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoaderIterator, Progress};
use burn::data::dataset::{Dataset, DatasetError};
use burn::tensor::Device;
use gpu_tuned_observe::log::warn_user;

use super::LoaderError;
use super::queue::{Bounds, Budget, Limit, Queue};
use super::source::{Claim, Source};
use crate::device::catching;
use crate::micro_batch::MicroBatch;
use crate::out_of_memory::{Moment, watched};
use crate::timing::StepInstrumentation;
use crate::train::OpenEpoch;

/// A batch in the host's memory.
pub(super) struct Prepared<B> {
    pub(super) batch: B,
    /// On the device.
    pub(super) bytes: u64,
    pub(super) samples: u64,
    /// Items of the epoch that are consumed with it.
    pub(super) consumed: usize,
}

/// Preparation of a batch from claimed items.
pub(super) struct Preparation<I, B> {
    pub(super) dataset: Arc<dyn Dataset<I>>,
    pub(super) batcher: Arc<dyn Batcher<I, B>>,
    /// Device of the batches.
    pub(super) device: Device,
    /// Instrumentation of the rank.
    pub(super) instrumentation: StepInstrumentation,
}

impl<I, B: MicroBatch> Preparation<I, B> {
    fn prepare(&self, claim: Claim<I>) -> Result<Prepared<B>, DatasetError> {
        let consumed = claim.consumed;
        let batch = self.instrumentation.time_preparation(|| {
            let items = claim.items(&*self.dataset)?;
            Ok::<_, DatasetError>(self.batcher.batch(items, &Device::flex()))
        })?;
        let (bytes, samples) = (batch.bytes(&self.device) as u64, batch.len() as u64);
        Ok(Prepared { batch, bytes, samples, consumed })
    }
}

/// The batch on the device; as it was, where the device has no memory for it.
fn brought<B: MicroBatch>(batch: B, device: &Device) -> B {
    match watched(Moment::Upload, || batch.clone().on_device(device)) {
        Ok(there) if there.has_arrived() => there,
        _ => {
            tracing::warn!("out of memory while a batch was brought to the device: it stays in the host's memory");
            device.memory_cleanup();
            batch
        }
    }
}

/// Batch with the items of the epoch that are consumed with it.
pub(super) type Taken<B> = Result<(B, usize), DatasetError>;

/// Pass over the data, as the consumer sees it. Ends with an error.
pub(super) struct Epoch<'l, B> {
    next: Box<dyn FnMut() -> Option<Taken<B>> + 'l>,
    /// Items that the consumer has had.
    consumed: usize,
    total: usize,
    is_over: bool,
    /// Record of a rank's epoch.
    _open: Option<OpenEpoch>,
}

impl<'l, B> Epoch<'l, B> {
    pub(super) fn new(next: Box<dyn FnMut() -> Option<Taken<B>> + 'l>, total: usize, open: Option<OpenEpoch>) -> Self {
        Self { next, consumed: 0, total, is_over: false, _open: open }
    }
}

impl<B> Iterator for Epoch<'_, B> {
    type Item = Result<B, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = (self.next)();
        self.consumed = match &next {
            Some(Ok((_, consumed))) => *consumed,
            Some(Err(_)) => self.consumed,
            None => self.total,
        };
        self.is_over = !matches!(next, Some(Ok(_)));
        next.map(|next| next.map(|(batch, _)| batch))
    }
}

impl<B> DataLoaderIterator<B> for Epoch<'_, B> {
    fn progress(&self) -> Progress {
        Progress::new(self.consumed, self.total, Some("items".to_owned()))
    }
}

/// Prepares each batch in the thread that asks for it.
pub(super) fn lazy<I, B: MicroBatch>(
    mut source: Source<I>,
    preparation: Preparation<I, B>,
    budget: Budget,
) -> impl FnMut() -> Option<Taken<B>> {
    let mut limit = Limit::new(budget);
    let mut prepare = move |claim| {
        let Prepared { batch, bytes, samples, consumed } = preparation.prepare(claim)?;
        let fits = bytes <= limit.given(bytes, samples);
        Ok((if fits { brought(batch, &preparation.device) } else { batch }, consumed))
    };
    move || Some(source.claim()?.and_then(&mut prepare))
}

/// Time without a batch after which the user is warned, once for each wait.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 60_000 });

/// Workers of an epoch, and the queue of their batches. Workers and uploader end with it.
pub(super) struct Prefetch<B: MicroBatch> {
    shared: Arc<Shared<B>>,
    workers: Vec<JoinHandle<()>>,
}

/// The queue between the threads.
struct Shared<B> {
    queue: Mutex<Queue<B>>,
    changed: Condvar,
    uploader: Uploader,
    device: Device,
    instrumentation: StepInstrumentation,
}

impl<B: MicroBatch> Prefetch<B> {
    pub(super) fn start<I: Send + 'static>(
        source: Source<I>,
        preparation: Preparation<I, B>,
        bounds: Bounds,
        workers: usize,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::new(bounds)),
            changed: Condvar::new(),
            uploader: Uploader::for_device(&preparation.device)?,
            device: preparation.device.clone(),
            instrumentation: preparation.instrumentation.clone(),
        });
        let work = Arc::new(Work { source: Mutex::new(source), preparation, shared: Arc::clone(&shared) });
        let mut epoch = Self { shared, workers: Vec::new() };
        for index in 0..workers {
            let work = Arc::clone(&work);
            let name = format!("gpu-tuned-load-{index}");
            match thread::Builder::new().name(name).spawn(move || work.run()) {
                Ok(worker) => epoch.workers.push(worker),
                Err(error) if epoch.workers.is_empty() => return Err(error),
                // Fewer workers are slower, and that is all.
                Err(error) => {
                    tracing::warn!(%error, index, "the system gives no more threads to the loader");
                    break;
                }
            }
        }
        Ok(epoch)
    }

    pub(super) fn next(&self) -> Option<Taken<B>> {
        self.shared.instrumentation.time_wait(|| self.shared.lock().ready(), || self.shared.take())
    }
}

impl<B: MicroBatch> Drop for Prefetch<B> {
    fn drop(&mut self) {
        self.shared.close();
        for worker in self.workers.drain(..) {
            // Workers catch the panics of what they run.
            drop(worker.join());
        }
        self.shared.wait_for_upload();
        // What the threads had in hand when they heard of it.
        self.shared.close();
    }
}

impl<B: MicroBatch> Shared<B> {
    /// Waits for room for a batch; `false` when none is wanted any more.
    fn reserve(&self) -> bool {
        let mut queue = self.lock();
        while !queue.is_over() {
            if queue.reserve() {
                return true;
            }
            queue = self.wait(queue);
        }
        false
    }

    fn run_dry(&self) {
        self.lock().run_dry();
        self.changed.notify_all();
    }

    fn put(self: &Arc<Self>, place: usize, prepared: Result<Prepared<B>, DatasetError>) {
        let mut queue = self.lock();
        queue.put(place, prepared);
        self.go_on(queue);
    }

    /// Waits for the next batch; `None` after the last. Warns the user of a long wait, since the dataset may hang.
    fn take(self: &Arc<Self>) -> Option<Taken<B>> {
        let mut queue = self.lock();
        let mut warn_at = Some(Instant::now() + PATIENCE);
        loop {
            if let Some(taken) = queue.take() {
                self.go_on(queue);
                return Some(taken);
            }
            if queue.is_exhausted() {
                return None;
            }
            queue = self.changed.wait_timeout(queue, PATIENCE).unwrap_or_else(PoisonError::into_inner).0;
            if warn_at.take_if(|at| Instant::now() >= *at).is_some() {
                warn_user(&format!(
                    "the loader has had no batch for {PATIENCE:?}, still waiting: the dataset or the batcher hangs, or needs \
                     more workers"
                ));
            }
        }
    }

    /// Passes ready batches on, and notifies all threads.
    fn go_on(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue<B>>) {
        let upload = queue.advance();
        drop(queue);
        self.changed.notify_all();
        if let Some(batch) = upload {
            let shared = Arc::clone(self);
            self.uploader.run(move || shared.upload(batch));
        }
    }

    fn upload(self: &Arc<Self>, batch: B) {
        let uploaded = self.instrumentation.trace_work("upload batch", || caught(|| Ok(brought(batch, &self.device))));
        let mut queue = self.lock();
        queue.uploaded(uploaded);
        self.go_on(queue);
    }

    fn close(&self) {
        let left = self.lock().close();
        self.changed.notify_all();
        // Dropped without a lock, because batches run the user's code.
        drop(left);
    }

    fn wait_for_upload(&self) {
        let mut queue = self.lock();
        while queue.is_uploading() {
            queue = self.wait(queue);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue<B>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue<B>>) -> MutexGuard<'a, Queue<B>> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }
}

/// State shared by the workers of an epoch.
struct Work<I, B> {
    source: Mutex<Source<I>>,
    preparation: Preparation<I, B>,
    shared: Arc<Shared<B>>,
}

impl<I, B: MicroBatch> Work<I, B> {
    /// Prepares batches until there are no more, or none are wanted.
    fn run(&self) {
        while self.shared.reserve() {
            let Some((place, claim)) = self.claim() else { return };
            let prepared = claim.and_then(|claim| caught(|| self.preparation.prepare(claim)));
            self.shared.put(place, prepared);
        }
    }

    /// The next batch and its place. Both are given out under one lock, so that places are in the source's order.
    fn claim(&self) -> Option<(usize, Result<Claim<I>, DatasetError>)> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        // A source that failed is not asked again.
        let claim = if self.shared.lock().is_over() { None } else { caught(|| source.claim().transpose()).transpose() };
        let Some(claim) = claim else {
            self.shared.run_dry();
            return None;
        };
        Some((self.shared.lock().deal(claim.is_err()), claim))
    }
}

/// The result of `work`, a panic as an error.
fn caught<T>(work: impl FnOnce() -> Result<T, DatasetError>) -> Result<T, DatasetError> {
    catching(work).unwrap_or_else(|message| Err(LoaderError::Panicked { message }.into()))
}

type Job = Box<dyn FnOnce() + Send>;

/// Hands uploads to a device's thread.
///
/// There is one thread for each device, for as long as the process lives. CubeCL gives every thread a stream with memory
/// pools of its own and never takes them back: a thread for each epoch would leave its pools behind.
#[derive(Clone)]
struct Uploader(Sender<Job>);

static UPLOADERS: Mutex<Vec<(Device, Uploader)>> = Mutex::new(Vec::new());

impl Uploader {
    /// Uploader to `device`, with or without autodiff.
    fn for_device(device: &Device) -> io::Result<Self> {
        let mut uploaders = UPLOADERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, uploader)) = uploaders.iter().find(|(known, _)| known == device) {
            return Ok(uploader.clone());
        }
        let uploader = Self::start()?;
        uploaders.push((device.clone(), uploader.clone()));
        Ok(uploader)
    }

    fn start() -> io::Result<Self> {
        let (sender, jobs) = channel::<Job>();
        let work = move || {
            for job in jobs {
                // Jobs report their panics themselves; this is for batches that panic when they are dropped.
                drop(catch_unwind(AssertUnwindSafe(job)));
            }
        };
        thread::Builder::new().name("gpu-tuned-upload".to_owned()).spawn(work)?;
        Ok(Self(sender))
    }

    /// Runs `job` after those that were handed over before.
    fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.0.send(Box::new(job)).expect("BUG: an uploader ends only with the process");
    }
}
