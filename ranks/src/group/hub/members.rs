//! Members of the group on rank 0: formation, silent ranks, and ranks that wait in vain.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::{Forming, Hub, Member, State};
use crate::group::error::{Ended, JoinError};
use crate::group::protocol::{Activity, Applicant, Pulse, REPORT};
use crate::launch::Launch;

/// Open files of the program itself.
const OWN_FILES: usize = 64;
/// Open files of strangers, and more of the program.
const FILES: usize = 1024;
/// Missing ranks that are listed.
const LISTED: usize = 16;
/// Time for the others to ask why the group did not form.
const LINGER: Duration = Duration::from_secs(5);

impl Hub {
    /// Opens the port and waits until all ranks have joined.
    pub(crate) async fn form(self: Arc<Self>, launch: Launch) -> Result<Arc<Self>, JoinError> {
        if self.root.world_size == 1 {
            return Ok(self);
        }
        allow_files(self.root.world_size).map_err(|cause| JoinError::system(0, &self.root.host.name, &cause))?;
        let listener = self.listen(&launch).await?;
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
        // Its own rank 0 has another port, or has not started yet: no fault of this run.
        if applicant.run != self.root.run {
            let error = JoinError::other_run(&applicant, &self.root);
            state.refused += 1;
            state.last_refusal = error.to_string();
            return Err(error);
        }
        match &*self.formation.borrow() {
            Forming::Waiting => {}
            Forming::Formed => return Err(JoinError::Late { rank, host: applicant.host.name }),
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
            let clash = applicant.distinct_terms().find_map(|term| {
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
        state.distinct.extend(applicant.distinct_terms().map(|term| (term, rank)));
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
        let host = self.root.host.name.clone();
        JoinError::Missing { host, missing, joined, world_size, seconds, refused }
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

/// Time between checks.
pub(crate) const INTERVAL: Duration = Duration::from_millis(500);

impl Hub {
    /// Checks all members until the hub is closed.
    pub(super) async fn watch_members(self: Arc<Self>) {
        let mut checked = Instant::now();
        loop {
            tokio::select! {
                () = self.closed() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            let pause = checked.elapsed();
            checked = Instant::now();
            if pause > self.limits.silence / 2 {
                // This process was stopped itself, and has read no heartbeat. Shorter pauses raise no false alarm.
                self.state().members.iter_mut().flatten().for_each(|member| member.seen += pause);
            }
            let ended = self.silent_rank().or_else(|| self.uneven_ranks()).or_else(|| self.stuck_ranks());
            if let Some(ended) = ended {
                self.end(ended);
                return;
            }
        }
    }

    fn silent_rank(&self) -> Option<Ended> {
        let state = self.state();
        let mut members = state.ranks().filter(|(rank, member)| *rank > 0 && member.finished.is_none());
        let (rank, member) = members.find(|(_, member)| member.seen.elapsed() > self.limits.silence)?;
        let host = member.applicant.host.name.clone();
        Some(Ended::Silent { rank, host, seconds: member.seen.elapsed().as_secs() })
    }

    /// Finds a rank that waits in an exchange for one that has finished.
    fn uneven_ranks(&self) -> Option<Ended> {
        let own = self.heart.pulse();
        let state = self.state();
        let finished = state.ranks().filter_map(|(rank, member)| Some((member.finished?, rank)));
        let (since, rank) = finished.min()?;
        let waiting = state.ranks().find_map(|(waiting, member)| {
            let exchanging = || member.exchanging_since((waiting == 0).then_some(own));
            let arrived = state.meeting.messages[waiting].as_ref().map(|(time, _)| *time);
            let begin = arrived.or_else(exchanging)?;
            (member.finished.is_none() && begin.max(since).elapsed() > self.limits.uneven).then_some(waiting)
        })?;
        let (host, waiting_host) = (state.host(rank), state.host(waiting));
        Some(Ended::Uneven { rank, host, waiting, waiting_host })
    }

    /// Finds the rank that does not arrive in an exchange on GPUs, or arrived last in one that does not end.
    fn stuck_ranks(&self) -> Option<Ended> {
        let own = self.heart.pulse();
        let state = self.state();
        let running = state.ranks().filter(|(_, member)| member.finished.is_none());
        let arrivals = running.map(|(rank, member)| (member.exchanging_since((rank == 0).then_some(own)), rank));
        let (arrived, late): (Vec<_>, Vec<_>) = arrivals.partition(|(since, _)| since.is_some());
        if let Some((_, rank)) = late.first() {
            let seconds = arrived.iter().min()?.0?.elapsed();
            let end = || Ended::Late { rank: *rank, host: state.host(*rank), seconds: seconds.as_secs() };
            return (seconds > self.limits.arrival).then(end);
        }
        let (last, rank) = *arrived.iter().max()?;
        let seconds = last?.elapsed();
        let end = || Ended::Stuck { rank, host: state.host(rank), seconds: seconds.as_secs() };
        (seconds > self.limits.exchange).then(end)
    }
}

impl State {
    fn ranks(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.members.iter().enumerate().filter_map(|(rank, member)| Some((rank, member.as_ref()?)))
    }
}

impl Member {
    /// Returns the time since which the rank exchanges, from its last heartbeat or from `own`, the state of rank 0.
    fn exchanging_since(&self, own: Option<Pulse>) -> Option<Instant> {
        let (pulse, seen) = own.map_or((self.pulse, self.seen), |own| (own, Instant::now()));
        (pulse.activity == Activity::Exchanging).then(|| seen.checked_sub(pulse.since)).flatten()
    }
}

/// Raises the limit of open files to what so many ranks need, and as far as allowed to what strangers may take.
///
/// # Errors
/// If the hard limit is lower than what the ranks need.
#[cfg(unix)]
fn allow_files(ranks: usize) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let (needed, wanted) = ((ranks + OWN_FILES) as u64, (ranks + OWN_FILES + FILES) as u64);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if let Some(maximum) = maximum.filter(|maximum| *maximum < needed) {
        return Err(io::Error::other(format!(
            "rank 0 needs {needed} open files for {ranks} ranks, but the hard limit is {maximum} (`ulimit -Hn`); raise it in \
             limits.conf, or in the launcher or service that starts rank 0 (LimitNOFILE)"
        )));
    }
    let raised = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum })?)
}

/// Other systems have no such limit for sockets.
#[cfg(not(unix))]
fn allow_files(_: usize) -> io::Result<()> {
    Ok(())
}
