//! Detection of silent ranks, and of ranks that wait in vain.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Hub, Member, State};
use crate::ended::Ended;
use crate::pulse::{Activity, Pulse};

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
            let begin = state.meeting.waiting_since(waiting).or_else(exchanging)?;
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
