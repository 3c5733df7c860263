//! Detection of silent ranks, and of ranks that wait in vain.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Hub;
use crate::ended::Ended;
use crate::pulse::{Activity, Pulse};

/// Time between checks.
const INTERVAL: Duration = Duration::from_millis(500);

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
            if pause > 4 * INTERVAL {
                // This process was stopped itself, and has read no heartbeat.
                self.state().members.iter_mut().flatten().for_each(|member| member.seen += pause);
            }
            let ended = self.silent_rank().or_else(|| self.uneven_ranks());
            if let Some(ended) = ended {
                self.end(ended);
                return;
            }
        }
    }

    fn silent_rank(&self) -> Option<Ended> {
        let state = self.state();
        let members = state.members.iter().enumerate().skip(1);
        let mut running = members.filter_map(|(rank, member)| Some((rank, member.as_ref()?)));
        let is_silent = |time: Duration| time > self.limits.silence;
        running.find(|(_, member)| member.finished.is_none() && is_silent(member.seen.elapsed())).map(
            |(rank, member)| Ended::Silent {
                rank,
                host: member.applicant.host.name.clone(),
                seconds: member.seen.elapsed().as_secs(),
            },
        )
    }

    /// Finds a rank that waits in an exchange for one that has finished.
    fn uneven_ranks(&self) -> Option<Ended> {
        let own = self.heart.pulse();
        let state = self.state();
        let ranks = || state.members.iter().enumerate();
        let finished = ranks().filter_map(|(rank, member)| Some((member.as_ref()?.finished?, rank)));
        let (since, rank) = finished.min()?;
        let waiting = ranks().find_map(|(waiting, member)| {
            let member = member.as_ref().filter(|member| member.finished.is_none())?;
            let (pulse, seen) = if waiting == 0 { (own, Instant::now()) } else { (member.pulse, member.seen) };
            let begin = state.meeting.waiting_since(waiting).or_else(|| exchanging_since(&pulse, seen))?;
            (begin.max(since).elapsed() > self.limits.uneven).then_some(waiting)
        })?;
        let (host, waiting_host) = (state.host(rank), state.host(waiting));
        Some(Ended::Uneven { rank, host, waiting, waiting_host })
    }
}

fn exchanging_since(pulse: &Pulse, seen: Instant) -> Option<Instant> {
    (pulse.activity == Activity::Exchanging).then(|| seen.checked_sub(pulse.since)).flatten()
}
