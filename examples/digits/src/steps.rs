//! Optimizer steps: every epoch in a new order, every step split into micro-batches of given sizes.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use burn::data::dataset::{Dataset, DatasetError, InMemDataset, transform::ShuffledDataset};

use crate::data::{Digit, HostBatch};

// Steps that one worker may have ready before they are asked for.
const READY_PER_WORKER: usize = 1;

type Worker = mpsc::Receiver<Result<Step, DatasetError>>;
type Shuffled = ShuffledDataset<Arc<InMemDataset<Digit>>, Digit>;

/// The samples of one optimizer step.
#[derive(Clone, Debug)]
pub struct Step {
    /// The parts whose gradients are added up.
    pub micro_batches: Vec<HostBatch>,
}

impl Step {
    /// Samples in all micro-batches.
    pub fn samples(&self) -> usize {
        self.micro_batches.iter().map(HostBatch::len).sum()
    }
}

/// A data set as a series of optimizer steps.
///
/// The order of the samples depends on the seed alone, not on the sizes of the micro-batches or the number of workers.
#[derive(Clone)]
pub struct Steps {
    dataset: Arc<InMemDataset<Digit>>,
    micro_batches: Vec<usize>,
    num_workers: usize,
}

impl Steps {
    /// Splits every optimizer step into micro-batches of the given sizes, in samples, assembled by `num_workers` threads.
    ///
    /// `None` when the sizes add up to zero.
    pub fn new(dataset: Arc<InMemDataset<Digit>>, micro_batches: &[usize], num_workers: usize) -> Option<Self> {
        let steps = Self { dataset, micro_batches: micro_batches.to_vec(), num_workers };
        (steps.global_batch() > 0).then_some(steps)
    }

    /// Samples in a full optimizer step.
    pub fn global_batch(&self) -> usize {
        self.micro_batches.iter().sum()
    }

    /// Optimizer steps in one epoch. The last one takes what is left, which may be less than the global batch.
    pub fn per_epoch(&self) -> usize {
        self.dataset.len().div_ceil(self.global_batch())
    }

    /// The steps of one epoch, in the order that the seed gives.
    pub fn epoch(&self, seed: u64) -> Box<dyn Iterator<Item = Result<Step, DatasetError>>> {
        let shuffled = Arc::new(ShuffledDataset::new(self.dataset.clone(), seed));
        let indices = 0..self.per_epoch();
        if self.num_workers == 0 {
            let steps = self.clone();
            return Box::new(indices.map(move |index| steps.assemble(&shuffled, index)));
        }
        let workers: Vec<_> = (0..self.num_workers).map(|worker| self.spawn(worker, shuffled.clone())).collect();
        // Worker n makes the steps n, n + workers, …: taking turns restores the order.
        Box::new(indices.map(move |index| receive(&workers[index % workers.len()])))
    }

    fn spawn(&self, worker: usize, shuffled: Arc<Shuffled>) -> Worker {
        let (sender, receiver) = mpsc::sync_channel(READY_PER_WORKER);
        let steps = self.clone();
        thread::spawn(move || {
            for index in (worker..steps.per_epoch()).step_by(steps.num_workers) {
                // The other end is gone when the epoch is given up early.
                if sender.send(steps.assemble(&shuffled, index)).is_err() {
                    break;
                }
            }
        });
        receiver
    }

    fn assemble(&self, shuffled: &Shuffled, index: usize) -> Result<Step, DatasetError> {
        let mut start = index * self.global_batch();
        let end = (start + self.global_batch()).min(shuffled.len());
        let mut micro_batches = Vec::with_capacity(self.micro_batches.len());
        for size in &self.micro_batches {
            let next = (start + size).min(end);
            if start < next {
                micro_batches.push(HostBatch::new(&shuffled.get_many((start..next).collect())?));
            }
            start = next;
        }
        Ok(Step { micro_batches })
    }
}

fn receive(worker: &Worker) -> Result<Step, DatasetError> {
    worker.recv().expect("BUG: a worker ends only after its last step")
}
