//! Times after which ranks are given up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ended::Ended;

/// Reaction of a process to the end of its group.
pub type ExitHook = Arc<dyn Fn(&Ended) + Send + Sync>;

/// Number of ranks above which heartbeats are rarer.
const MANY_RANKS: usize = 4096;

/// Times after which ranks are given up.
#[derive(Clone)]
pub struct Limits {
    /// Time for all ranks to join; 300 s by default.
    pub join: Duration,
    /// Time between heartbeats, doubled above 4,096 ranks; 1 s by default.
    pub heartbeat: Duration,
    /// Time without a heartbeat after which a rank counts as dead; 15 s by default.
    pub silence: Duration,
    /// Time for which ranks may wait in an exchange for a rank that has finished; 5 s by default.
    pub uneven: Duration,
    /// Time for an exchange on GPUs in which all ranks take part; 300 s by default.
    pub exchange: Duration,
    /// Time for which ranks may wait in an exchange on GPUs for one that does not arrive; 1,800 s by default.
    pub arrival: Duration,
    /// Time between the end of the group and the end of the process; 8 s by default.
    pub grace: Duration,
    /// Called after [`grace`](Self::grace) instead of the end of the process; `None` by default.
    pub exit_hook: Option<ExitHook>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            join: Duration::from_secs(300),
            heartbeat: Duration::from_secs(1),
            silence: Duration::from_secs(15),
            uneven: Duration::from_secs(5),
            exchange: Duration::from_secs(300),
            arrival: Duration::from_secs(1800),
            grace: Duration::from_secs(8),
            exit_hook: None,
        }
    }
}

impl Limits {
    /// Sets the [`exit_hook`](Self::exit_hook), for tests with several ranks in one process.
    #[must_use]
    pub fn with_exit_hook(mut self, hook: impl Fn(&Ended) + Send + Sync + 'static) -> Self {
        self.exit_hook = Some(Arc::new(hook));
        self
    }

    /// Returns the time between heartbeats of so many ranks, all of which rank 0 answers.
    pub(crate) fn heartbeat_for(&self, ranks: usize) -> Duration {
        if ranks > MANY_RANKS { 2 * self.heartbeat } else { self.heartbeat }
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let Self { join, heartbeat, silence, uneven, exchange, arrival, grace, exit_hook } = self;
        let mut limits = formatter.debug_struct("Limits");
        limits.field("join", join).field("heartbeat", heartbeat).field("silence", silence);
        limits
            .field("uneven", uneven)
            .field("exchange", exchange)
            .field("arrival", arrival)
            .field("grace", grace)
            .field("has_exit_hook", &exit_hook.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::DESTRUCTORS;
    use crate::hub::{FAREWELL, liveness::INTERVAL};
    use crate::member::LATE_ANSWER;

    #[test]
    fn a_stopped_rank_ends_all_within_30_s() {
        let limits = Limits::default();
        let exit = limits.grace + DESTRUCTORS;
        // The interval is doubled on many ranks.
        let stopped_root = 2 * limits.heartbeat + limits.silence + LATE_ANSWER + exit;
        let stopped_member = limits.silence + INTERVAL + FAREWELL + exit;
        assert!(stopped_root.max(stopped_member) < Duration::from_secs(30));
    }
}
