//! Times after which ranks are given up, and the end of a process after that of its group.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, process, thread};

use tokio::sync::watch;

use crate::group::error::Ended;

/// Reaction of a process to the end of its group.
#[derive(Clone)]
pub struct ExitHook(Arc<dyn Fn(&Ended) + Send + Sync>);

impl fmt::Debug for ExitHook {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("ExitHook(..)")
    }
}

/// Number of ranks above which heartbeats are rarer.
const MANY_RANKS: usize = 4096;

/// Times after which ranks are given up.
#[derive(Clone, Debug)]
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
            join: Duration::from_mins(5),
            heartbeat: Duration::from_secs(1),
            silence: Duration::from_secs(15),
            uneven: Duration::from_secs(5),
            exchange: Duration::from_mins(5),
            arrival: Duration::from_mins(30),
            grace: Duration::from_secs(8),
            exit_hook: None,
        }
    }
}

impl Limits {
    /// Sets the [`exit_hook`](Self::exit_hook), for tests with several ranks in one process.
    #[must_use]
    pub fn with_exit_hook(mut self, hook: impl Fn(&Ended) + Send + Sync + 'static) -> Self {
        self.exit_hook = Some(ExitHook(Arc::new(hook)));
        self
    }

    /// Returns the time between heartbeats of so many ranks, all of which rank 0 answers.
    pub(crate) fn heartbeat_for(&self, ranks: usize) -> Duration {
        if ranks > MANY_RANKS { 2 * self.heartbeat } else { self.heartbeat }
    }
}

/// The first end of a group.
#[derive(Default)]
pub(super) struct End(watch::Sender<Option<Ended>>);

impl End {
    /// Records an end; returns the first one, if there was another before.
    pub(super) fn record(&self, ended: &Ended) -> Option<Ended> {
        let mut first = None;
        self.0.send_if_modified(|present| {
            first.clone_from(present);
            present.get_or_insert_with(|| ended.clone());
            first.is_none()
        });
        first
    }

    pub(super) async fn wait(&self) -> Ended {
        let mut receiver = self.0.subscribe();
        let ended = receiver.wait_for(Option::is_some).await.map(|ended| ended.clone());
        ended.ok().flatten().expect("BUG: the sender outlives its method")
    }
}

/// End of the group, as seen by this process. The first end arms the exit of the process.
pub(super) struct Status {
    ended: End,
    limits: Limits,
}

impl Status {
    pub(super) fn new(limits: Limits) -> Self {
        Self { ended: End::default(), limits }
    }

    pub(super) fn end(&self, ended: Ended) {
        if self.ended.record(&ended).is_none() {
            exit_after_grace(ended, &self.limits);
        }
    }

    pub(super) fn get(&self) -> Option<Ended> {
        self.ended.0.borrow().clone()
    }

    pub(super) async fn ended(&self) -> Ended {
        self.ended.wait().await
    }

    /// Waits for the end, without a borrow; false if the group was dropped without one.
    pub(super) fn end_of_group(&self) -> impl Future<Output = bool> + use<> {
        let mut receiver = self.ended.0.subscribe();
        async move { receiver.wait_for(Option::is_some).await.is_ok() }
    }
}

/// Exit code of a process whose group ended: "temporary failure", on which launchers restart.
pub const EXIT_CODE: i32 = 75;

/// Time for the last message and for destructors.
pub(crate) const DESTRUCTORS: Duration = Duration::from_secs(3);

/// Ends the process after [`Limits::grace`]. A thread may wait in a library that nothing interrupts.
fn exit_after_grace(ended: Ended, limits: &Limits) {
    let (grace, hook) = (limits.grace, limits.exit_hook.clone());
    let body = move || {
        thread::sleep(grace);
        match hook {
            Some(ExitHook(hook)) => hook(&ended),
            None => exit(&ended),
        }
    };
    if thread::Builder::new().name("gpu-tuned exit".to_owned()).spawn(body).is_err() {
        eprintln!("gpu-tuned: no thread to wait for the end of this process, so that it ends now");
        process::abort();
    }
}

fn exit(ended: &Ended) -> ! {
    let message = format!(
        "gpu-tuned: this process ends with exit code {EXIT_CODE}, because the group of ranks has ended: {ended}"
    );
    // A full pipe and a destructor may block for ever.
    let exiting = thread::Builder::new().spawn(move || {
        eprintln!("{message}");
        process::exit(EXIT_CODE)
    });
    if exiting.is_ok() {
        thread::sleep(DESTRUCTORS);
    }
    process::abort();
}

#[cfg(test)]
mod tests {
    use super::{DESTRUCTORS, *};
    use crate::group::hub::FAREWELL;
    use crate::group::hub::members::INTERVAL;
    use crate::group::member::LATE_ANSWER;

    #[test]
    fn a_stopped_rank_ends_all_within_30_s() {
        let limits = Limits::default();
        let exit = limits.grace + DESTRUCTORS;
        // The interval is doubled on many ranks.
        let stopped_root = 2 * limits.heartbeat + limits.silence + LATE_ANSWER + exit;
        let stopped_member = limits.silence + INTERVAL + FAREWELL + exit;
        assert!(stopped_root.max(stopped_member) < Duration::from_secs(30));
    }

    /// Ranks that find different mistakes at one time get the same end.
    #[test]
    fn the_first_end_stays() {
        let [one, other] = [1, 2].map(|rank| Ended::Lost { rank, host: "node".to_owned() });
        let end = End::default();
        assert_eq!((end.record(&one), end.record(&other), end.record(&one)), (None, Some(one.clone()), Some(one)));
    }
}
