//! The group of ranks, as the training loop sees it.

mod error;
mod handshake;
mod hub;
mod limits;
mod member;
mod protocol;
mod users;

use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::{fmt, io, thread};

use tokio::runtime::{Builder, Handle};
use tracing::subscriber::{NoSubscriber, with_default};

use crate::launch::Launch;
pub use error::{Ended, JoinError};
use handshake::nonce;
use hub::Hub;
use limits::Status;
pub use limits::{EXIT_CODE, ExitHook, Limits};
use member::Member;
pub use protocol::{Activity, StepTime, Terms};
use protocol::{Applicant, Heart, Host, differing};

/// Processes that train together.
///
/// All ranks have to make the same calls of [`meet`](Self::meet), [`sum`](Self::sum), [`broadcast`](Self::broadcast),
/// [`barrier`](Self::barrier) and [`agree`](Self::agree) in the same order. If a rank fails, is killed or hangs, every
/// call returns [`Ended`], and the process exits with [`EXIT_CODE`] after [`Limits::grace`].
///
/// An exchange in which a rank fails may succeed on some ranks and return [`Ended`] on others.
///
/// Clones share the group. The drop of the last clone [finishes](Self::finish) it; a drop during a panic ends it.
#[derive(Clone)]
pub struct Group {
    inner: Arc<Inner>,
}

struct Inner {
    rank: usize,
    world_size: usize,
    host: String,
    role: Role,
    status: Arc<Status>,
    heart: Arc<Heart>,
    runtime: Handle,
    /// Number of exchanges so far; locked during an exchange.
    meetings: Mutex<u64>,
    has_finished: AtomicBool,
}

enum Role {
    Root(Arc<Hub>),
    Member(Arc<Member>),
}

impl Group {
    /// Joins the ranks of a launch. Rank 0 waits for the others; these connect to rank 0, which compares their terms
    /// with its own.
    ///
    /// # Errors
    /// If ranks are missing after [`Limits::join`], or differ in terms or secret. On rank 0 also if its port is in use.
    pub fn join(launch: &Launch, terms: Terms, limits: Limits) -> Result<Self, JoinError> {
        let (rank, world_size, host) = (launch.rank, launch.world_size, Host::current());
        let name = host.name.clone();
        if launch.secret.is_none() && world_size > 1 {
            let required = |because| Err(JoinError::SecretRequired { rank, host: name.clone(), because });
            if !launch.is_one_host() {
                return required("ranks on several hosts open a port to the network".to_owned());
            }
            if !users::ARE_VISIBLE {
                return required("this system does not show which user connects".to_owned());
            }
        }
        let system = |error| JoinError::system(rank, &name, &error);
        let runtime = start_runtime().map_err(system)?;
        let instance = nonce().map_err(system)?;
        let applicant = Applicant { rank, world_size, host, run: launch.run.clone(), terms, instance };
        let status = Arc::new(Status::new(limits.clone()));
        let heart = Arc::new(Heart::new());
        let ends = (Arc::clone(&status), Arc::clone(&heart));
        let role = if rank == 0 {
            let hub = Hub::new(launch, applicant, limits, ends.0, ends.1, runtime.clone());
            Role::Root(wait(&runtime, hub.form(launch.clone()))?)
        } else {
            let joining = Member::join(launch.clone(), applicant, limits, ends.0, ends.1);
            Role::Member(Arc::new(wait(&runtime, joining)?))
        };
        let inner = Inner {
            rank,
            world_size,
            host: name,
            role,
            status,
            heart,
            runtime,
            meetings: Mutex::new(0),
            has_finished: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// Returns the number of processes.
    pub fn world_size(&self) -> usize {
        self.inner.world_size
    }

    /// Returns the name of this process's host.
    pub fn host(&self) -> &str {
        &self.inner.host
    }

    /// Exchanges messages: all ranks send their own, and all get the reply that rank 0 makes of them, in the order of
    /// ranks. An error of `reply` ends the group.
    ///
    /// # Errors
    /// If the group has ended.
    pub fn meet(
        &self,
        kind: &'static str,
        own: Vec<u8>,
        reply: impl FnOnce(Vec<Vec<u8>>) -> Result<Vec<u8>, String>,
    ) -> Result<Vec<u8>, Ended> {
        self.meet_or_end(kind, own, |messages| {
            reply(messages).map_err(|message| Ended::Rejected { kind: kind.to_owned(), message })
        })
    }

    /// Exchanges messages. The error of `reply` is the end of the group.
    fn meet_or_end(
        &self,
        kind: &'static str,
        own: Vec<u8>,
        reply: impl FnOnce(Vec<Vec<u8>>) -> Result<Vec<u8>, Ended>,
    ) -> Result<Vec<u8>, Ended> {
        let inner = &self.inner;
        let mut meetings = inner.meetings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = inner.status.get() {
            return Err(ended);
        }
        if inner.has_finished.load(Ordering::SeqCst) {
            return Err(Ended::Finished);
        }
        let meeting = *meetings;
        let received = match &inner.role {
            Role::Root(hub) => {
                let messages = wait(&inner.runtime, Arc::clone(hub).gather(meeting, kind, own))?;
                match reply(messages) {
                    Ok(reply) => {
                        hub.publish(reply.clone());
                        reply
                    }
                    Err(ended) => {
                        self.end(ended.clone());
                        return Err(ended);
                    }
                }
            }
            Role::Member(member) => wait(&inner.runtime, Arc::clone(member).meet(meeting, kind, own))?,
        };
        *meetings += 1;
        Ok(received)
    }

    /// Returns the name of a rank's host; on other ranks than rank 0, where it is unknown, an empty text.
    fn host_of(&self, rank: usize) -> String {
        match &self.inner.role {
            Role::Root(hub) => hub.host(rank),
            Role::Member(_) => String::new(),
        }
    }

    /// Reports a failure of this rank, which ends the group on all ranks.
    pub fn fail(&self, message: impl Into<String>) {
        let (rank, host) = (self.inner.rank, self.inner.host.clone());
        self.end(Ended::Failed { rank, host, message: message.into() });
    }

    fn end(&self, ended: Ended) {
        let inner = &self.inner;
        if inner.status.get().is_some() || inner.has_finished.load(Ordering::SeqCst) {
            return;
        }
        match &inner.role {
            Role::Root(hub) => wait(&inner.runtime, Arc::clone(hub).fail(ended)),
            Role::Member(member) => wait(&inner.runtime, Arc::clone(member).fail(ended)),
        }
    }

    /// Returns the reason why the group has ended; `None` while the group exists.
    pub fn ended(&self) -> Option<Ended> {
        self.inner.status.get()
    }

    /// Calls `hook` in a thread of its own once the group has ended; never, if it finishes. The hook does not keep the group.
    pub fn on_end(&self, hook: impl FnOnce() + Send + 'static) {
        let end = self.inner.status.end_of_group();
        self.inner.runtime.spawn(async move {
            if end.await {
                thread::spawn(hook);
            }
        });
    }

    /// Waits until all ranks have finished.
    ///
    /// # Errors
    /// If the group has ended, or ends meanwhile.
    pub fn finish(&self) -> Result<(), Ended> {
        self.inner.finish()
    }

    /// Reports the activity of this rank in its heartbeats.
    pub fn set_activity(&self, activity: Activity) {
        self.inner.heart.set_activity(activity);
    }

    /// Reports the duration of a step in the heartbeats: the seconds without the wait for other ranks.
    pub fn record_step(&self, step: u64, seconds: f64) {
        self.inner.heart.record_step(step, seconds);
    }

    /// Returns the last step of each rank that reported one: on rank 0 of all ranks, elsewhere of this rank.
    pub fn step_times(&self) -> Vec<StepTime> {
        match &self.inner.role {
            Role::Root(hub) => hub.step_times(),
            Role::Member(_) => {
                let (rank, host) = (self.inner.rank, self.inner.host.clone());
                let step = self.inner.heart.pulse().step;
                step.into_iter().map(|(step, seconds)| StepTime { rank, host: host.clone(), step, seconds }).collect()
            }
        }
    }
}

impl Inner {
    fn finish(&self) -> Result<(), Ended> {
        if let Some(ended) = self.status.get() {
            return Err(ended);
        }
        if self.has_finished.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        match &self.role {
            Role::Root(hub) => wait(&self.runtime, Arc::clone(hub).finish()),
            Role::Member(member) => wait(&self.runtime, Arc::clone(member).finish()),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if thread::panicking() {
            self.end(Ended::Panicked { rank: self.inner.rank, host: self.inner.host.clone() });
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !thread::panicking() {
            // An end of the group was returned by the calls before, or is printed when the process exits.
            let _ = self.finish();
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let Inner { rank, world_size, host, .. } = &*self.inner;
        let mut group = formatter.debug_struct("Group");
        group.field("rank", rank).field("world_size", world_size).field("host", host).finish_non_exhaustive()
    }
}

/// Bytes of all ranks' messages that rank 0 keeps at one time during a sum.
const GATHERED: usize = 64 * 1024 * 1024;
/// Fewest values of a sum in one exchange.
const LEAST_VALUES: usize = 1024;

impl Group {
    /// Adds up the values of all ranks, in the order of ranks. All ranks get the same bits.
    ///
    /// # Errors
    /// If the group has ended, or ranks have different numbers of values.
    pub fn sum(&self, mut values: Vec<f32>) -> Result<Vec<f32>, Ended> {
        let values_at_once = (GATHERED / size_of::<f32>() / self.world_size()).max(LEAST_VALUES);
        let count = (values.len() as u64).to_le_bytes();
        for part in values.chunks_mut(values_at_once) {
            let own = [count.to_vec(), part.iter().flat_map(|value| value.to_le_bytes()).collect()].concat();
            let reply = self.meet_or_end("sum", own, |messages| {
                let parts = || messages.iter().map(|message| message.split_first_chunk().unwrap_or((&[0; 8], &[])));
                self.compare("number of values", parts().map(|(count, _)| u64::from_le_bytes(*count).to_string()))?;
                Ok(add(parts().map(|(_, values)| values)))
            })?;
            part.iter_mut().zip(floats(&reply)).for_each(|(value, sum)| *value = sum);
        }
        Ok(values)
    }

    /// Returns rank 0's message on all ranks.
    ///
    /// # Errors
    /// If the group has ended.
    pub fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>, Ended> {
        let own = if self.rank() == 0 { own } else { Vec::new() };
        self.meet("broadcast", own, |messages| Ok(messages.into_iter().next().unwrap_or_default()))
    }

    /// Waits until all ranks have arrived.
    ///
    /// # Errors
    /// If the group has ended.
    pub fn barrier(&self) -> Result<(), Ended> {
        self.meet("barrier", Vec::new(), |_| Ok(Vec::new())).map(drop)
    }

    /// Checks that all ranks have the same value of something, such as a hash of the model's shape. Of a value of several
    /// lines, the error shows the lines that differ.
    ///
    /// # Errors
    /// If the group has ended, or ranks differ: this ends the group, and names the first rank that differs from rank 0.
    pub fn agree(&self, name: &str, value: &str) -> Result<(), Ended> {
        let reply = |messages: Vec<Vec<u8>>| {
            self.compare(name, messages.iter().map(|value| String::from_utf8_lossy(value).into_owned()))?;
            Ok(Vec::new())
        };
        self.meet_or_end("agree", value.as_bytes().to_vec(), reply).map(drop)
    }

    /// Compares values of all ranks, in the order of ranks, with that of rank 0.
    fn compare(&self, name: &str, mut values: impl Iterator<Item = String>) -> Result<(), Ended> {
        let expected = values.next().unwrap_or_default();
        let different = values.zip(1..).find(|(value, _)| *value != expected);
        let Some((value, rank)) = different else { return Ok(()) };
        let (name, host) = (name.to_owned(), self.host_of(rank));
        let (value, expected) = differing(&value, &expected);
        Err(Ended::Differs { name, rank, host, value, expected })
    }
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes))
}

/// Adds up values of the same number, in their order.
fn add<'a>(mut messages: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut sums: Vec<f32> = messages.next().map(|first| floats(first).collect()).unwrap_or_default();
    for message in messages {
        sums.iter_mut().zip(floats(message)).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().flat_map(|sum| sum.to_le_bytes()).collect()
}

static HANDLE: Mutex<Option<Handle>> = Mutex::new(None);

/// Starts the thread if it does not run, and returns its handle.
fn start_runtime() -> io::Result<Handle> {
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
fn wait<T: Send + 'static>(handle: &Handle, future: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, receiver) = mpsc::sync_channel(1);
    handle.spawn(async move {
        let _ = sender.send(future.await);
    });
    receiver.recv().expect("BUG: a task of the ranks' thread panicked")
}
