//! End of the group, as seen by this process.

use tokio::sync::watch;

use crate::ended::Ended;
use crate::exit;
use crate::limits::Limits;

/// Records the first end of the group, and arms the exit of the process.
pub(crate) struct Status {
    ended: watch::Sender<Option<Ended>>,
    limits: Limits,
}

impl Status {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { ended: watch::Sender::new(None), limits }
    }

    /// Records an end; the first one counts.
    pub(crate) fn end(&self, ended: Ended) {
        let is_first = self.ended.send_if_modified(|present| {
            let is_first = present.is_none();
            present.get_or_insert_with(|| ended.clone());
            is_first
        });
        if is_first {
            exit::arm(ended, &self.limits);
        }
    }

    pub(crate) fn get(&self) -> Option<Ended> {
        self.ended.borrow().clone()
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) -> Ended {
        let mut receiver = self.ended.subscribe();
        let ended = receiver.wait_for(Option::is_some).await.map(|ended| ended.clone());
        ended.ok().flatten().expect("BUG: the sender outlives its method")
    }
}
