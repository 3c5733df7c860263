//! An epoch whose batches are prepared ahead.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use burn::data::dataloader::{DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;
use gpu_tuned_observe::log::warn_user;

use super::queue::{Bounds, Queue};
use super::uploader::Uploader;
use super::worker::{Work, caught};
use super::{Consumption, Preparation, Prepared, Source, brought};
use crate::micro_batch::MicroBatch;
use crate::timing::StepInstrumentation;

/// Time without a batch after which the user is warned, once for each wait.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 60_000 });

/// The consumer's side of an epoch. Workers and uploader end with it.
pub(in crate::load) struct Prefetch<B: MicroBatch> {
    shared: Arc<Shared<B>>,
    workers: Vec<JoinHandle<()>>,
    consumption: Consumption,
    is_over: bool,
}

/// The queue between the threads.
pub(super) struct Shared<B> {
    queue: Mutex<Queue<B>>,
    changed: Condvar,
    uploader: Uploader,
    device: Device,
    instrumentation: StepInstrumentation,
}

impl<B: MicroBatch> Prefetch<B> {
    pub(in crate::load) fn start<I: Send + 'static>(
        source: Source<I>,
        preparation: Preparation<I, B>,
        bounds: Bounds,
        workers: usize,
    ) -> io::Result<Self> {
        let consumption = Consumption { items: 0, total: preparation.dataset.len() };
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::new(bounds)),
            changed: Condvar::new(),
            uploader: Uploader::for_device(&preparation.device)?,
            device: preparation.device.clone(),
            instrumentation: preparation.instrumentation.clone(),
        });
        let work = Arc::new(Work { source: Mutex::new(source), preparation, shared: Arc::clone(&shared) });
        let mut epoch = Self { shared, workers: Vec::new(), consumption, is_over: false };
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
}

impl<B: MicroBatch> Iterator for Prefetch<B> {
    type Item = Result<B, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.shared.instrumentation.time_wait(|| self.shared.ready(), || self.shared.take());
        self.consumption.items = match &next {
            Some(Ok((_, consumed))) => *consumed,
            Some(Err(_)) => self.consumption.items,
            None => self.consumption.total,
        };
        self.is_over = !matches!(next, Some(Ok(_)));
        next.map(|next| next.map(|(batch, _)| batch))
    }
}

impl<B: MicroBatch> DataLoaderIterator<B> for Prefetch<B> {
    fn progress(&self) -> Progress {
        self.consumption.progress()
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
    pub(super) fn reserve(&self) -> bool {
        let mut queue = self.lock();
        while !queue.is_over() {
            if queue.reserve() {
                return true;
            }
            queue = self.wait(queue);
        }
        false
    }

    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    pub(super) fn deal(&self, is_last: bool) -> usize {
        self.lock().deal(is_last)
    }

    pub(super) fn run_dry(&self) {
        self.lock().run_dry();
        self.changed.notify_all();
    }

    pub(super) fn put(self: &Arc<Self>, place: usize, prepared: Result<Prepared<B>, DatasetError>) {
        let mut queue = self.lock();
        queue.put(place, prepared);
        self.go_on(queue);
    }

    /// Batches that wait for the consumer.
    fn ready(&self) -> usize {
        self.lock().ready()
    }

    /// Waits for the next batch; `None` after the last. Warns the user of a long wait, since the dataset may hang.
    fn take(self: &Arc<Self>) -> Option<Result<(B, usize), DatasetError>> {
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
