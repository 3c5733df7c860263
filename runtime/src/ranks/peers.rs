//! The group of ranks, as trainers use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpu_tuned_observe::recording::SlowestRank;
use gpu_tuned_ranks::{Activity, Group};
use gpu_tuned_train::train::{Peers, PeersEnded};

/// Connection of a trainer to the other ranks.
#[derive(Debug)]
pub(super) struct GroupPeers {
    group: Group,
    steps: AtomicU64,
}

impl GroupPeers {
    pub(super) fn new(group: Group) -> Self {
        Self { group, steps: AtomicU64::new(0) }
    }
}

impl Peers for GroupPeers {
    fn sum(&self, values: Vec<f32>) -> Result<Vec<f32>, PeersEnded> {
        self.group.sum(values).map_err(|ended| -> PeersEnded { Arc::new(ended) })
    }

    fn agree(&self, name: &'static str, value: String) -> Result<(), PeersEnded> {
        self.group.agree(name, &value).map_err(|ended| -> PeersEnded { Arc::new(ended) })
    }

    fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>, PeersEnded> {
        self.group.broadcast(own).map_err(|ended| -> PeersEnded { Arc::new(ended) })
    }

    fn fail(&self, message: &str) {
        self.group.fail(message);
    }

    fn set_waiting(&self, is_waiting: bool) {
        self.group.set_activity(if is_waiting { Activity::Exchanging } else { Activity::Working });
    }

    fn set_step_seconds(&self, seconds: f64) {
        self.group.record_step(self.steps.fetch_add(1, Ordering::Relaxed), seconds);
    }

    fn slowest(&self) -> Option<SlowestRank> {
        let times = self.group.step_times();
        SlowestRank::of(times.iter().map(|time| (time.rank as u64, time.host.as_str(), time.seconds)))
    }
}
