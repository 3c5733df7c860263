//! Time limits for calls of the driver, which can hang in the kernel, where nothing cancels them.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Time limit of the first calls, in which the driver may have to start.
pub(crate) const FIRST_CALLS: Duration = Duration::from_secs(60);

/// Time limit of a sample.
pub const SAMPLE_LIMIT: Duration = Duration::from_secs(10);

/// A handle whose calls run on threads of their own, with a time limit.
#[derive(Debug)]
pub struct Limited<T, R> {
    idle: Option<T>,
    /// Receives the handle and the result of the call in progress.
    busy: Option<Receiver<(T, R)>>,
}

impl<T: Send + 'static, R: Send + 'static> Limited<T, R> {
    /// A handle that is not in use.
    pub const fn new(handle: T) -> Self {
        Self { idle: Some(handle), busy: None }
    }

    /// Calls `work`, and waits for its result. Returns `None` after `limit`; the next call waits for the same result again.
    /// After a panic of `work`, all calls return `None`.
    pub fn call(&mut self, limit: Duration, work: impl FnOnce(&mut T) -> R + Send + 'static) -> Option<R> {
        if let Some(mut handle) = self.idle.take() {
            let (sender, receiver) = channel();
            let call = move || {
                let result = work(&mut handle);
                // Nobody waits for a result that is too late.
                let _ = sender.send((handle, result));
            };
            self.busy = Some(receiver);
            thread::Builder::new().name("gpu-tuned-driver".to_owned()).spawn(call).ok()?;
        }
        let (handle, result) = self.busy.as_ref()?.recv_timeout(limit).ok()?;
        (self.idle, self.busy) = (Some(handle), None);
        Some(result)
    }
}

/// Calls `work` on a thread of its own. Returns `None` if it takes longer than `limit`.
pub(crate) fn within<R: Send + 'static>(limit: Duration, work: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    Limited::new(()).call(limit, |()| work())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::{Limited, within};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn results_and_the_handle_come_back() {
        let mut counter = Limited::new(0);
        let mut next = || counter.call(LONG, |count| std::mem::replace(count, *count + 1));
        assert_eq!([next(), next(), next()], [Some(0), Some(1), Some(2)]);
        assert_eq!(within(LONG, || 7), Some(7));
    }

    #[test]
    fn a_call_that_hangs_is_left_and_its_result_taken_later() {
        let (go, gone) = channel::<()>();
        let mut handle = Limited::new("handle");
        assert_eq!(handle.call(Duration::from_millis(1), move |_| gone.recv().is_ok()), None);
        // The call in progress counts, not the new one.
        assert_eq!(handle.call(Duration::from_millis(1), |_| false), None);
        go.send(()).expect("it waits");
        assert_eq!(handle.call(LONG, |_| false), Some(true));
        assert_eq!(handle.call(LONG, |_| false), Some(false));
    }

    #[test]
    fn a_panic_ends_the_handle() {
        let mut handle = Limited::new(());
        assert_eq!(handle.call(LONG, |()| panic!("the library is broken")), None::<()>);
        assert_eq!(handle.call(LONG, |()| ()), None);
    }
}
