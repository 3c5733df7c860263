//! State of a rank in its heartbeats.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Activity of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// The rank computes, waits for data, evaluates or saves.
    #[default]
    Working,
    /// The rank waits for other ranks, or exchanges gradients with them.
    Exchanging,
}

/// Duration of a rank's last step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepTime {
    /// Rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// Number of the step.
    pub step: u64,
    /// Seconds from the end of the last step to the exchange.
    pub seconds: f64,
}

/// Heartbeat of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pulse {
    /// Last step and its seconds.
    pub(crate) step: Option<(u64, f64)>,
    pub(crate) activity: Activity,
    /// Time in that activity.
    pub(crate) since: Duration,
}

/// Source of this rank's heartbeats.
pub(crate) struct Heart {
    state: Mutex<(Pulse, Instant)>,
}

impl Heart {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new((Pulse::default(), Instant::now())) }
    }

    pub(crate) fn set_activity(&self, activity: Activity) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.activity != activity {
            state.0.activity = activity;
            state.1 = Instant::now();
        }
    }

    pub(crate) fn record_step(&self, step: u64, seconds: f64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.step = Some((step, seconds));
    }

    pub(crate) fn pulse(&self) -> Pulse {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Pulse { since: state.1.elapsed(), ..state.0 }
    }
}
