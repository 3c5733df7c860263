//! Rank 0: the group's members, exchanges and end.

mod connections;
pub(super) mod members;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::group::error::{Ended, JoinError};
use crate::group::limits::{End, Limits, Status};
use crate::group::protocol::{Applicant, Heart, Host, Pulse, StepTime};
use crate::launch::{Launch, Secret};

/// Time for the others to learn of the end before this process may end.
pub(crate) const FAREWELL: Duration = Duration::from_secs(2);

/// Rank 0 of a group.
pub(crate) struct Hub {
    root: Applicant,
    secret: Option<Secret>,
    limits: Limits,
    heart: Arc<Heart>,
    status: Arc<Status>,
    runtime: Handle,
    state: Mutex<State>,
    formation: watch::Sender<Forming>,
    /// Number of exchanges for which all messages have arrived.
    complete: watch::Sender<u64>,
    /// Last reply, after the number of its exchange plus 1.
    reply: watch::Sender<(u64, Arc<Vec<u8>>)>,
    ended: End,
    all_finished: watch::Sender<bool>,
    connections: watch::Sender<usize>,
    closed: watch::Sender<bool>,
}

/// Formation of the group, as rank 0 sees it.
enum Forming {
    Waiting,
    Formed,
    Failed(JoinError),
}

/// Mutable part of a [`Hub`].
struct State {
    members: Vec<Option<Member>>,
    /// Ranks by what has to differ between the ranks of a host.
    distinct: HashMap<(Host, String, String), usize>,
    joined: usize,
    /// Number of ranks with the reason why there is no group.
    told: usize,
    /// Connections refused for a wrong secret or protocol.
    refused: usize,
    last_refusal: String,
    meeting: Meeting,
    finished: usize,
}

struct Member {
    applicant: Applicant,
    connection: u64,
    seen: Instant,
    pulse: Pulse,
    finished: Option<Instant>,
}

impl Hub {
    pub(crate) fn new(
        launch: &Launch,
        root: Applicant,
        limits: Limits,
        status: Arc<Status>,
        heart: Arc<Heart>,
        runtime: Handle,
    ) -> Arc<Self> {
        let world_size = launch.world_size;
        let mut members: Vec<_> = std::iter::repeat_with(|| None).take(world_size).collect();
        members[0] = Some(Member::new(root.clone(), 0));
        let distinct = root.distinct_terms().map(|term| (term, 0)).collect();
        let meeting = Meeting { number: 0, first: None, messages: vec![None; world_size], arrived: 0 };
        let last_refusal = String::new();
        let (joined, told, refused, finished) = (1, 0, 0, 0);
        let state = State { members, distinct, joined, told, refused, last_refusal, meeting, finished };
        Arc::new(Self {
            root,
            secret: launch.secret.clone(),
            limits,
            heart,
            status,
            runtime,
            state: Mutex::new(state),
            formation: watch::Sender::new(if world_size == 1 { Forming::Formed } else { Forming::Waiting }),
            complete: watch::Sender::new(0),
            reply: watch::Sender::default(),
            ended: End::default(),
            all_finished: watch::Sender::new(false),
            connections: watch::Sender::new(0),
            closed: watch::Sender::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the group, and returns its first end. The status of this rank follows the messages to the others, or [`FAREWELL`].
    fn end(self: &Arc<Self>, ended: Ended) -> Ended {
        if let Some(first) = self.ended.record(&ended) {
            return first;
        }
        let (hub, recorded) = (Arc::clone(self), ended.clone());
        self.runtime.spawn(async move {
            hub.drain().await;
            hub.status.end(recorded);
        });
        ended
    }

    /// Ends the group after a failure of this rank, and waits for the messages to the others.
    pub(crate) async fn fail(self: Arc<Self>, ended: Ended) {
        self.end(ended);
        self.status.ended().await;
    }

    /// Waits until all members have closed their connections, and closes the rest.
    async fn drain(&self) {
        let mut connections = self.connections.subscribe();
        let _ = timeout(FAREWELL, connections.wait_for(|count| *count == 0)).await;
        self.closed.send_replace(true);
    }

    async fn closed(&self) {
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Records that a rank has finished, and waits for the others.
    async fn finished(&self, rank: usize) -> Result<(), Ended> {
        {
            let mut state = self.state();
            // A rank repeats the call after a while.
            let unfinished = state.members[rank].as_mut().filter(|member| member.finished.is_none());
            if let Some(member) = unfinished {
                member.finished = Some(Instant::now());
                state.finished += 1;
            }
            if state.finished == state.members.len() {
                self.all_finished.send_replace(true);
            }
        }
        let mut all_finished = self.all_finished.subscribe();
        tokio::select! {
            ended = self.ended.wait() => Err(ended),
            _ = all_finished.wait_for(|finished| *finished) => Ok(()),
        }
    }

    /// Waits until all ranks have finished and their connections are closed.
    pub(crate) async fn finish(self: Arc<Self>) -> Result<(), Ended> {
        match self.finished(0).await {
            Ok(()) => {
                self.drain().await;
                Ok(())
            }
            Err(_) => Err(self.status.ended().await),
        }
    }

    pub(crate) fn host(&self, rank: usize) -> String {
        self.state().host(rank)
    }

    /// Returns the last step of each rank that reported one.
    pub(crate) fn step_times(&self) -> Vec<StepTime> {
        let own = self.heart.pulse();
        let state = self.state();
        let ranks = state.members.iter().enumerate();
        let times = ranks.filter_map(|(rank, member)| {
            let member = member.as_ref()?;
            let (step, seconds) = if rank == 0 { own.step? } else { member.pulse.step? };
            Some(StepTime { rank, host: member.applicant.host.name.clone(), step, seconds })
        });
        times.collect()
    }
}

impl State {
    fn host(&self, rank: usize) -> String {
        self.members[rank].as_ref().map(|member| member.applicant.host.name.clone()).unwrap_or_default()
    }

    /// Places a message, which has to belong to the present exchange.
    fn place(&mut self, rank: usize, number: u64, kind: &str, message: Vec<u8>) -> Result<(), Ended> {
        let first = self.meeting.first.clone();
        if let Some((other_kind, other)) = first.filter(|(other_kind, _)| other_kind != kind) {
            let (host, other_host) = (self.host(rank), self.host(other));
            return Err(Ended::OutOfStep { rank, host, kind: kind.to_owned(), other, other_host, other_kind });
        }
        if number != self.meeting.number || self.meeting.messages[rank].is_some() {
            let message = format!("rank {rank} is at exchange {number}, rank 0 at {}", self.meeting.number);
            return Err(Ended::Rejected { kind: kind.to_owned(), message });
        }
        self.meeting.first.get_or_insert_with(|| (kind.to_owned(), rank));
        self.meeting.messages[rank] = Some((Instant::now(), message));
        self.meeting.arrived += 1;
        Ok(())
    }
}

impl Member {
    fn new(applicant: Applicant, connection: u64) -> Self {
        Self { applicant, connection, seen: Instant::now(), pulse: Pulse::default(), finished: None }
    }
}

/// Exchange for which messages arrive.
struct Meeting {
    /// Number of the exchange, from 0.
    number: u64,
    /// Kind of the exchange, and the rank that arrived first.
    first: Option<(String, usize)>,
    /// Messages by rank, with the times of their arrival.
    messages: Vec<Option<(Instant, Vec<u8>)>>,
    arrived: usize,
}

impl Hub {
    pub(super) fn deposit(
        self: &Arc<Self>,
        rank: usize,
        number: u64,
        kind: &str,
        message: Vec<u8>,
    ) -> Result<(), Ended> {
        let mut state = self.state();
        if let Err(ended) = state.place(rank, number, kind, message) {
            drop(state);
            return Err(self.end(ended));
        }
        if state.meeting.arrived == state.members.len() {
            self.complete.send_replace(number + 1);
        }
        Ok(())
    }

    /// Sends rank 0's own message, and returns the messages of all ranks.
    pub(crate) async fn gather(
        self: Arc<Self>,
        number: u64,
        kind: &'static str,
        own: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, Ended> {
        if self.deposit(0, number, kind, own).is_err() {
            return Err(self.status.ended().await);
        }
        let mut complete = self.complete.subscribe();
        tokio::select! {
            ended = self.status.ended() => return Err(ended),
            _ = complete.wait_for(|complete| *complete > number) => {}
        }
        let mut state = self.state();
        let messages = state.meeting.messages.iter_mut().map(Option::take);
        let messages = messages.map(|message| message.map(|(_, bytes)| bytes).unwrap_or_default()).collect();
        Ok(messages)
    }

    pub(crate) fn publish(&self, reply: Vec<u8>) {
        let number = {
            let mut state = self.state();
            state.meeting.number += 1;
            state.meeting.first = None;
            state.meeting.arrived = 0;
            state.meeting.number
        };
        self.reply.send_replace((number, Arc::new(reply)));
    }

    pub(super) async fn reply(&self, number: u64) -> Result<Arc<Vec<u8>>, Ended> {
        let mut replies = self.reply.subscribe();
        tokio::select! {
            ended = self.ended.wait() => Err(ended),
            reply = replies.wait_for(|(published, _)| *published > number) => {
                Ok(reply.map(|reply| Arc::clone(&reply.1)).expect("BUG: the sender outlives its method"))
            }
        }
    }
}
