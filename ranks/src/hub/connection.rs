//! Calls of one member.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tarpc::context::Context;
use tokio::time::timeout;

use super::{Forming, Hub};
use crate::ended::Ended;
use crate::host::Host;
use crate::join_error::JoinError;
use crate::protocol::{Formation, Piece, REPORT, Rendezvous, piece_at};
use crate::pulse::Pulse;
use crate::terms::Applicant;

/// Connection of a process that has proved the secret.
#[derive(Clone)]
pub(super) struct Connection {
    hub: Arc<Hub>,
    number: u64,
    /// Rank, once the process has joined.
    rank: Arc<OnceLock<usize>>,
    /// Part of a message that has arrived.
    received: Arc<Mutex<Vec<u8>>>,
}

impl Connection {
    pub(super) fn new(hub: Arc<Hub>, number: u64) -> Self {
        Self { hub, number, rank: Arc::default(), received: Arc::default() }
    }

    /// Returns the rank behind the connection, and records that it is alive.
    fn alive(&self, pulse: Option<Pulse>) -> Option<usize> {
        let rank = *self.rank.get()?;
        let mut state = self.hub.state();
        let member = state.members[rank].as_mut().filter(|member| member.connection == self.number)?;
        member.seen = Instant::now();
        member.pulse = pulse.unwrap_or(member.pulse);
        Some(rank)
    }

    /// Returns the rank of a call that only members make.
    fn member(&self) -> Result<usize, Ended> {
        let message = || "a call came before its process had joined".to_owned();
        self.alive(None).ok_or_else(|| Ended::Rejected { kind: "join".to_owned(), message: message() })
    }

    pub(super) fn disconnected(&self) {
        if let Some(rank) = self.rank.get() {
            self.hub.lose(*rank, self.number);
            self.hub.connections.send_modify(|count| *count -= 1);
        }
    }
}

impl Rendezvous for Connection {
    async fn join(self, _: Context, applicant: Applicant) -> Result<Host, JoinError> {
        let rank = applicant.rank;
        self.hub.admit(applicant, self.number)?;
        if self.rank.set(rank).is_ok() {
            self.hub.connections.send_modify(|count| *count += 1);
        }
        Ok(self.hub.root.host.clone())
    }

    async fn formed(self, _: Context) -> Result<Formation, JoinError> {
        let mut forming = self.hub.formation.subscribe();
        let decided = forming.wait_for(|forming| !matches!(forming, Forming::Waiting));
        let _ = timeout(REPORT, decided).await;
        match &*self.hub.formation.borrow() {
            Forming::Formed => Ok(Formation::Formed),
            Forming::Waiting => Ok(Formation::Waiting(self.hub.missing())),
            Forming::Failed(error) => {
                self.hub.state().told += 1;
                Err(error.clone())
            }
        }
    }

    async fn send(self, _: Context, piece: Piece) -> Result<(), Ended> {
        let rank = self.member()?;
        let message = {
            let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
            received.extend_from_slice(&piece.bytes);
            (received.len() >= piece.total).then(|| std::mem::take(&mut *received))
        };
        message.map_or(Ok(()), |message| self.hub.deposit(rank, piece.meeting, &piece.kind, message))
    }

    async fn receive(self, _: Context, meeting: u64, offset: usize) -> Result<Piece, Ended> {
        self.member()?;
        let reply = self.hub.reply(meeting).await?;
        Ok(Piece { meeting, kind: String::new(), total: reply.len(), bytes: piece_at(&reply, offset) })
    }

    async fn beat(self, _: Context, pulse: Pulse) {
        self.alive(Some(pulse));
    }

    async fn ended(self, _: Context) -> Ended {
        self.hub.ended().await
    }

    async fn fail(self, _: Context, ended: Ended) {
        if self.member().is_ok() {
            self.hub.end(ended);
        }
    }

    async fn finish(self, _: Context) -> Result<(), Ended> {
        let rank = self.member()?;
        self.hub.finished(rank).await
    }
}
