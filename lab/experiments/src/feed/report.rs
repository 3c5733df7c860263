//! The lines of `feed`, and their measurements.

use gpu_tuned::MicroBatch;
use serde::Serialize;

use super::{Feeding, HOST_MS};

/// Source of the batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Feeder {
    /// A single batch on the device, repeated.
    Resident,
    /// [`Session::loader`](gpu_tuned::Session::loader).
    Library,
    /// Burn's `MultiThreadDataLoader`.
    Burn,
}

/// Measurements of a round, or of all rounds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Fed {
    pub steps: u64,
    /// From the moment that the first batch is there to the end of the last step.
    pub seconds: f64,
    /// In asking for batches but the first.
    pub waiting_seconds: f64,
    /// In asking for the first, which fills the loader's queues.
    pub first_seconds: f64,
    /// The most of batches on the device, counted one by one, with the one that is trained on.
    pub held_bytes: u64,
    /// The most that the pools had in use after a step.
    pub in_use_bytes: u64,
    /// The least that was free on the card after a step.
    pub free_bytes: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct Line<'a> {
    pub feeder: Feeder,
    pub device: &'a str,
    pub host_ms_per_sample: f64,
    pub cores: usize,
    pub num_workers: u64,
    pub prefetch_depth: u64,
    pub global_batch: u64,
    pub batch_size: u64,
    pub predicted_samples_per_s: f64,
    pub samples_per_s: f64,
    #[serde(flatten)]
    pub fed: Fed,
    /// Share of the time that the device would not have needed for a batch that is there.
    pub idle_share: Option<f64>,
    /// Idle share with the first batch of every round included.
    pub idle_share_with_first: Option<f64>,
    /// Share of the time in which a batch was waited for.
    pub waiting_share: f64,
    /// Maximum bytes waiting on the device: all batches there except for the current one.
    pub queue_bytes: u64,
    /// The plan's budget for waiting batches, in bytes.
    pub budget_bytes: u64,
    /// Bytes in use in the pools beyond those with a resident batch.
    pub in_use_beyond_bytes: u64,
    /// Reduction of the card's free memory compared with a resident batch.
    pub taken_beyond_bytes: Option<u64>,
}

impl Fed {
    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            seconds: self.seconds + other.seconds,
            waiting_seconds: self.waiting_seconds + other.waiting_seconds,
            first_seconds: self.first_seconds + other.first_seconds,
            held_bytes: self.held_bytes.max(other.held_bytes),
            in_use_bytes: self.in_use_bytes.max(other.in_use_bytes),
            free_bytes: least(self.free_bytes, other.free_bytes),
        }
    }
}

/// The smaller of two optional figures.
pub(super) fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

impl Feeding {
    /// The line of a feeder, compared with a resident batch.
    pub(super) fn line(&self, feeder: Feeder, fed: Fed, resident: Fed) -> Line<'_> {
        let plan = self.session.plan();
        let settings = &plan.settings;
        let samples = self.session.schedule().global_batch;
        let needed = resident.seconds / resident.steps as f64 * fed.steps as f64;
        let is_loader = feeder != Feeder::Resident;
        let idle = |seconds: f64| is_loader.then(|| 1.0 - needed / seconds);
        let resident_bytes = self.resident.bytes(&self.session.device()) as u64;
        let bytes_per_sample = resident_bytes / samples;
        Line {
            feeder,
            device: &plan.device,
            host_ms_per_sample: HOST_MS,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            num_workers: settings.num_workers,
            prefetch_depth: settings.prefetch_depth,
            global_batch: samples,
            batch_size: settings.batch_size,
            predicted_samples_per_s: plan.samples_per_s,
            samples_per_s: (fed.steps * samples) as f64 / fed.seconds,
            fed,
            idle_share: idle(fed.seconds),
            idle_share_with_first: idle(fed.seconds + fed.first_seconds),
            waiting_share: fed.waiting_seconds / fed.seconds,
            queue_bytes: fed.held_bytes.saturating_sub(resident_bytes),
            budget_bytes: settings.prefetch_depth * settings.batch_size * bytes_per_sample,
            in_use_beyond_bytes: fed.in_use_bytes.saturating_sub(resident.in_use_bytes),
            taken_beyond_bytes: resident.free_bytes.zip(fed.free_bytes).map(|(more, less)| more.saturating_sub(less)),
        }
    }
}
