//! Batches that are prepared while steps are taken.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_observe::bench::Feed;

/// Prepares so many samples in the host's memory.
pub(super) type Prepare<'p> = dyn Fn(usize) + Send + Sync + 'p;

/// Queue of prepared batches.
pub(super) struct Fed<'p> {
    prepare: &'p Prepare<'p>,
    samples: usize,
    /// `None` without workers.
    prepared: Option<Receiver<()>>,
}

impl Fed<'_> {
    /// Waits for a prepared batch, or prepares it. Returns the time that it took.
    ///
    /// # Panics
    ///
    /// When no worker is left, as all of them have panicked.
    pub(super) fn take(&mut self) -> Duration {
        let begin = Instant::now();
        match &self.prepared {
            Some(prepared) => prepared.recv().expect("the preparation of a batch panicked"),
            None => (self.prepare)(self.samples),
        }
        begin.elapsed()
    }
}

/// Runs a function on batches of so many samples, which workers prepare meanwhile. As with the session's loader,
/// `prefetch` batches wait, and each worker prepares one more.
///
/// # Panics
///
/// When the preparation does.
pub(super) fn feeding<T>(
    prepare: &Prepare<'_>,
    samples: usize,
    Feed { workers, prefetch }: Feed,
    work: impl FnOnce(&mut Fed<'_>) -> T,
) -> T {
    if workers == 0 {
        return work(&mut Fed { prepare, samples, prepared: None });
    }
    let (sender, prepared) = sync_channel(usize::try_from(prefetch).unwrap_or(usize::MAX).clamp(1, MOST_WAITING));
    thread::scope(|scope| {
        for _ in 0..workers {
            let sender = sender.clone();
            scope.spawn(move || prepare_on(prepare, samples, &sender));
        }
        drop(sender);
        // Workers end when it is dropped, also where the work panics.
        work(&mut Fed { prepare, samples, prepared: Some(prepared) })
    })
}

/// The channel's buffer is made at once.
const MOST_WAITING: usize = 1 << 16;

fn prepare_on(prepare: &Prepare<'_>, samples: usize, to: &SyncSender<()>) {
    loop {
        prepare(samples);
        if to.send(()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread::sleep;
    use std::time::Duration;

    use gpu_tuned_observe::bench::Feed;

    use super::feeding;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn no_more_is_prepared_than_may_wait_and_is_in_hand() {
        let made = AtomicUsize::new(0);
        let prepare = |samples: usize| {
            assert_eq!(samples, 7);
            made.fetch_add(1, SeqCst);
        };
        for (workers, prefetch, most) in [(0, 4, 0), (1, 1, 2), (2, 3, 5)] {
            made.store(0, SeqCst);
            feeding(&prepare, 7, Feed { workers, prefetch }, |fed| {
                sleep(50 * MS);
                assert!(made.load(SeqCst) <= most, "{workers} workers: {made:?}");
                fed.take();
            });
            assert!((1..=most + 1).contains(&made.load(SeqCst)), "{workers} workers: {made:?}");
        }
    }

    #[test]
    fn what_is_waited_is_what_workers_do_not_hide() {
        let waited = |workers| {
            feeding(&|_| sleep(10 * MS), 1, Feed { workers, prefetch: 2 }, |fed| {
                for _ in 0..3 {
                    fed.take();
                }
                let take = |_| {
                    sleep(10 * MS);
                    fed.take()
                };
                (0..5).map(take).sum::<Duration>()
            })
        };
        let (alone, fed) = (waited(0), waited(4));
        assert!(alone >= 50 * MS && fed < alone / 2, "{alone:?}, {fed:?}");
    }

    #[test]
    fn a_panic_of_the_preparation_is_one_of_the_work_and_hangs_nothing() {
        for workers in [0, 1, 3] {
            let twice = |fed: &mut super::Fed<'_>| (fed.take(), fed.take());
            let work = || feeding(&|_| panic!("no such file"), 1, Feed { workers, prefetch: 2 }, twice);
            assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        }
    }
}
