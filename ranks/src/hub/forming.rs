//! Formation of the group on rank 0.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::{Forming, Hub, Member};
use crate::ended::Ended;
use crate::files;
use crate::host::Host;
use crate::join_error::JoinError;
use crate::launch::Launch;
use crate::protocol::REPORT;
use crate::terms::Applicant;

/// Open files beside those of the ranks: strangers, and those of the program.
const FILES: usize = 1024;
/// Missing ranks that are listed.
const LISTED: usize = 16;
/// Time for the others to ask why the group did not form.
const LINGER: Duration = Duration::from_secs(5);

/// Returns what may not occur twice on a host.
pub(super) fn distinct_terms(applicant: &Applicant) -> impl Iterator<Item = (Host, String, String)> {
    let host = applicant.host.clone();
    applicant.terms.distinct().iter().map(move |(term, value)| (host.clone(), term.clone(), value.clone()))
}

impl Hub {
    /// Opens the port and waits until all ranks have joined.
    pub(crate) async fn form(self: Arc<Self>, launch: Launch) -> Result<Arc<Self>, JoinError> {
        if self.root.world_size == 1 {
            return Ok(self);
        }
        let needed = self.root.world_size + FILES;
        files::allow(needed).map_err(|error| JoinError::System { cause: error.to_string() })?;
        let listener = Self::listen(&launch).await?;
        tokio::spawn(Arc::clone(&self).accept(listener));
        if timeout(self.limits.join, self.wait_for_members()).await.is_err() {
            self.fail_to_form(self.missing());
        }
        let failure = match &*self.formation.borrow() {
            Forming::Failed(error) => Some(error.clone()),
            Forming::Formed | Forming::Waiting => None,
        };
        if let Some(error) = failure {
            self.linger(&error).await;
            return Err(error);
        }
        tokio::spawn(Arc::clone(&self).watch_members());
        Ok(self)
    }

    /// Waits until the others have asked why the group did not form.
    async fn linger(&self, error: &JoinError) {
        let begin = Instant::now();
        let is_late = matches!(error, JoinError::Missing { .. });
        let awaited = if is_late { self.state().joined } else { self.root.world_size };
        let is_awaited = || self.state().told + 1 < awaited || *self.connections.borrow() > 0;
        while begin.elapsed() < LINGER && is_awaited() {
            sleep(Duration::from_millis(50)).await;
        }
        self.closed.send_replace(true);
    }

    /// Waits until the group has formed or failed to, and prints which ranks are missing.
    async fn wait_for_members(&self) {
        let mut forming = self.formation.subscribe();
        let mut wait = REPORT;
        loop {
            let decided = forming.wait_for(|forming| !matches!(forming, Forming::Waiting));
            if timeout(wait, decided).await.is_ok() {
                return;
            }
            let (joined, missing) = self.missing_ranks();
            eprintln!("gpu-tuned: {joined} of {} ranks have joined; waiting for {missing}", self.root.world_size);
            wait = 5 * REPORT;
        }
    }

    /// Lets a rank join, or fails the formation for all ranks.
    pub(super) fn admit(&self, applicant: Applicant, connection: u64) -> Result<(), JoinError> {
        let rank = applicant.rank;
        let mut state = self.state();
        match &*self.formation.borrow() {
            Forming::Waiting => {}
            Forming::Formed => return Err(JoinError::Late { rank }),
            Forming::Failed(error) => {
                state.told += 1;
                return Err(error.clone());
            }
        }
        let check = || {
            applicant.difference(&self.root)?;
            let present = state.members[rank].as_ref();
            if let Some(present) = present.filter(|present| present.applicant.instance != applicant.instance) {
                let host = present.applicant.host.name.clone();
                return Err(JoinError::SameRank { rank, host, other_host: applicant.host.name.clone() });
            }
            let clash = distinct_terms(&applicant).find_map(|term| {
                let other = *state.distinct.get(&term).filter(|other| **other != rank)?;
                Some((term, other))
            });
            let Some(((host, term, value), other)) = clash else { return Ok(()) };
            Err(JoinError::Shared { rank, other, host: host.name, term, value })
        };
        if let Err(error) = check() {
            state.told += 1;
            drop(state);
            self.fail_to_form(error.clone());
            return Err(error);
        }
        state.distinct.extend(distinct_terms(&applicant).map(|term| (term, rank)));
        let is_new = state.members[rank].replace(Member::new(applicant, connection)).is_none();
        state.joined += usize::from(is_new);
        if state.joined == state.members.len() {
            // Heartbeats begin now.
            state.members.iter_mut().flatten().for_each(|member| member.seen = Instant::now());
            self.formation.send_replace(Forming::Formed);
        }
        Ok(())
    }

    /// Records that the connection of a member broke.
    pub(super) fn lose(self: &Arc<Self>, rank: usize, connection: u64) {
        let mut state = self.state();
        let Some(member) = state.members[rank].as_ref().filter(|member| member.connection == connection) else {
            return;
        };
        if !matches!(&*self.formation.borrow(), Forming::Formed) {
            // Another process may still join as this rank.
            state.members[rank] = None;
            state.distinct.retain(|_, other| *other != rank);
            state.joined -= 1;
        } else if member.finished.is_none() {
            let host = member.applicant.host.name.clone();
            drop(state);
            self.end(Ended::Lost { rank, host });
        }
    }

    pub(super) fn fail_to_form(&self, error: JoinError) {
        self.formation.send_if_modified(|forming| {
            let is_first = matches!(forming, Forming::Waiting);
            if is_first {
                *forming = Forming::Failed(error);
            }
            is_first
        });
    }

    /// Returns the error that follows if no more ranks join.
    pub(super) fn missing(&self) -> JoinError {
        let (joined, missing) = self.missing_ranks();
        let state = self.state();
        let refused = match state.refused {
            0 => String::new(),
            count => format!(" (refused connections: {count}, the last from {})", state.last_refusal),
        };
        let (world_size, seconds) = (self.root.world_size, self.limits.join.as_secs());
        JoinError::Missing { missing, joined, world_size, seconds, refused }
    }

    /// Returns the number of ranks that joined, and the names of those that did not.
    fn missing_ranks(&self) -> (usize, String) {
        let state = self.state();
        let ranks = state.members.iter().enumerate().filter(|(_, member)| member.is_none());
        let names: Vec<_> = ranks.take(LISTED).map(|(rank, _)| rank.to_string()).collect();
        let count = state.members.len() - state.joined;
        let more = if count > LISTED { format!(" and {} more", count - LISTED) } else { String::new() };
        let noun = if count == 1 { "rank" } else { "ranks" };
        (state.joined, format!("{noun} {}{more}", names.join(", ")))
    }
}
