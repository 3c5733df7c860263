//! The thread that serves connections, one for all groups of a process.

use std::future::{Future, pending};
use std::io;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tracing::subscriber::{NoSubscriber, with_default};

static HANDLE: Mutex<Option<Handle>> = Mutex::new(None);

/// Starts the thread if it does not run, and returns its handle.
pub(crate) fn handle() -> io::Result<Handle> {
    let mut handle = HANDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*handle {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let started = runtime.handle().clone();
    // Spans of the RPC library stay out of the program's log.
    let body = move || with_default(NoSubscriber::default(), || runtime.block_on(pending::<()>()));
    thread::Builder::new().name("gpu-tuned ranks".to_owned()).spawn(body)?;
    Ok(handle.insert(started).clone())
}

/// Runs a future on the thread and waits for its result.
///
/// Works within another runtime, too, where `block_on` would panic.
pub(crate) fn wait<T: Send + 'static>(handle: &Handle, future: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, receiver) = mpsc::sync_channel(1);
    handle.spawn(async move {
        let _ = sender.send(future.await);
    });
    receiver.recv().expect("BUG: a task of the ranks' thread panicked")
}
