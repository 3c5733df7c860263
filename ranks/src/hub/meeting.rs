//! Exchanges on rank 0: every rank sends a message, and all get one reply.

use std::sync::Arc;
use std::time::Instant;

use super::Hub;
use crate::ended::Ended;

/// Exchange for which messages arrive.
pub(super) struct Meeting {
    /// Number of the exchange, from 0.
    number: u64,
    /// Kind of the exchange, and the rank that arrived first.
    first: Option<(String, usize)>,
    /// Messages by rank, with the times of their arrival.
    messages: Vec<Option<(Instant, Vec<u8>)>>,
    arrived: usize,
}

impl Meeting {
    pub(super) fn new(world_size: usize) -> Self {
        Self { number: 0, first: None, messages: vec![None; world_size], arrived: 0 }
    }

    /// Returns the time since which a rank waits for others.
    pub(super) fn waiting_since(&self, rank: usize) -> Option<Instant> {
        self.messages[rank].as_ref().map(|(time, _)| *time)
    }
}

impl Hub {
    /// Records the message of a rank.
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
            self.end(ended.clone());
            return Err(ended);
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

    /// Sends the reply to all ranks.
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

    /// Waits for the reply of an exchange.
    pub(super) async fn reply(&self, number: u64) -> Result<Arc<Vec<u8>>, Ended> {
        let mut replies = self.reply.subscribe();
        tokio::select! {
            ended = self.ended() => Err(ended),
            reply = replies.wait_for(|(published, _)| *published > number) => {
                Ok(reply.map(|reply| Arc::clone(&reply.1)).expect("BUG: the sender outlives its method"))
            }
        }
    }
}

impl super::State {
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
