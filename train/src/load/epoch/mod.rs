//! Pass over the data: from the source through workers and the uploader to the consumer.

mod lazy;
mod prefetch;
mod queue;
mod source;
mod uploader;
mod worker;

use std::sync::Arc;

use burn::data::dataloader::Progress;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::{Dataset, DatasetError};
use burn::tensor::Device;

pub(super) use lazy::Lazy;
pub(super) use prefetch::Prefetch;
pub(super) use queue::Bounds;
use source::Claim;
pub(super) use source::Source;

use crate::micro_batch::MicroBatch;
use crate::out_of_memory::{Moment, watched};
use crate::timing::StepInstrumentation;

/// A batch in the host's memory.
struct Prepared<B> {
    batch: B,
    /// On the device.
    bytes: u64,
    samples: u64,
    /// Items of the epoch that are consumed with it.
    consumed: usize,
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

/// Items that the consumer has had, of those of the epoch.
struct Consumption {
    items: usize,
    total: usize,
}

impl Consumption {
    fn progress(&self) -> Progress {
        Progress::new(self.items, self.total, Some("items".to_owned()))
    }
}
