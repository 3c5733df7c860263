//! The group of ranks, as the training loop sees it.

mod exchange;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::runtime::Handle;

use crate::ended::Ended;
use crate::host::Host;
use crate::hub::Hub;
use crate::join_error::JoinError;
use crate::launch::Launch;
use crate::limits::Limits;
use crate::member::Member;
use crate::pulse::{Activity, Heart, StepTime};
use crate::runtime;
use crate::secret::nonce;
use crate::status::Status;
use crate::terms::{Applicant, Terms};

/// Processes that train together.
///
/// All ranks have to make the same calls of [`meet`](Self::meet), [`sum`](Self::sum), [`broadcast`](Self::broadcast),
/// [`barrier`](Self::barrier) and [`agree`](Self::agree) in the same order. If a rank fails, is killed or hangs, every
/// call returns [`Ended`], and the process exits with [`EXIT_CODE`](crate::EXIT_CODE) after [`Limits::grace`].
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
        if !launch.is_one_host() && launch.secret.is_none() {
            return Err(JoinError::SecretRequired);
        }
        let system = |error: std::io::Error| JoinError::System { cause: error.to_string() };
        let runtime = runtime::handle().map_err(system)?;
        let instance = nonce().map_err(system)?;
        let (rank, world_size, host) = (launch.rank, launch.world_size, Host::current());
        let name = host.name.clone();
        let applicant = Applicant { rank, world_size, host, terms, instance };
        let status = Arc::new(Status::new(limits.clone()));
        let heart = Arc::new(Heart::new());
        let ends = (Arc::clone(&status), Arc::clone(&heart));
        let role = if rank == 0 {
            let hub = Hub::new(launch, applicant, limits, ends.0, ends.1, runtime.clone());
            Role::Root(runtime::wait(&runtime, hub.form(launch.clone()))?)
        } else {
            let joining = Member::join(launch.clone(), applicant, limits, ends.0, ends.1);
            Role::Member(Arc::new(runtime::wait(&runtime, joining)?))
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
                let messages = runtime::wait(&inner.runtime, Arc::clone(hub).gather(meeting, kind, own))?;
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
            Role::Member(member) => {
                let member = Arc::clone(member);
                runtime::wait(&inner.runtime, async move { member.meet(meeting, kind, &own).await })?
            }
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
            Role::Root(hub) => runtime::wait(&inner.runtime, Arc::clone(hub).fail(ended)),
            Role::Member(member) => {
                let member = Arc::clone(member);
                runtime::wait(&inner.runtime, async move { member.fail(ended).await });
            }
        }
    }

    /// Returns the reason why the group has ended; `None` while the group exists.
    pub fn ended(&self) -> Option<Ended> {
        self.inner.status.get()
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
            Role::Root(hub) => runtime::wait(&self.runtime, Arc::clone(hub).finish()),
            Role::Member(member) => {
                let member = Arc::clone(member);
                runtime::wait(&self.runtime, async move { member.finish().await })
            }
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
