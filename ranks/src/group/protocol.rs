//! Calls between a rank and rank 0, and the data in them: conditions on which ranks join, and heartbeats.

use std::collections::HashSet;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tarpc::context::Context;
use tarpc::serde_transport::{self, Transport};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_serde::formats::MessagePack;
use tokio_util::codec::LengthDelimitedCodec;

use crate::group::error::{Ended, JoinError};

/// Bytes of the largest piece of a message.
pub(crate) const PIECE: usize = 256 * 1024;
/// Bytes of the largest frame: a piece or the terms of a rank.
const FRAME: usize = 1024 * 1024;
/// Calls that wait for other ranks are repeated after so long.
pub(crate) const LONG: Duration = Duration::from_hours(1);
/// Interval at which rank 0 reports that ranks are missing.
pub(crate) const REPORT: Duration = Duration::from_secs(2);

#[tarpc::service]
pub(crate) trait Rendezvous {
    /// Asks to join; returns the host of rank 0.
    async fn join(applicant: Applicant) -> Result<Host, JoinError>;
    /// Waits until the group has formed, for [`REPORT`].
    async fn formed() -> Result<Formation, JoinError>;
    /// Sends a piece of this rank's message.
    async fn send(piece: Piece) -> Result<(), Ended>;
    /// Waits for the reply of an exchange, and returns a piece of it.
    async fn receive(meeting: u64, offset: usize) -> Result<Piece, Ended>;
    /// Reports that this rank is alive.
    async fn beat(pulse: Pulse);
    /// Waits for the end of the group.
    async fn ended() -> Ended;
    async fn fail(ended: Ended);
    /// Waits until all ranks have finished.
    async fn finish() -> Result<(), Ended>;
}

/// Progress of the group's formation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Formation {
    /// Ranks are missing: the error that follows if they do not come.
    Waiting(JoinError),
    Formed,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// Number of the exchange, from 0.
    pub(crate) meeting: u64,
    pub(crate) kind: String,
    pub(crate) total: usize,
    pub(crate) bytes: ByteBuf,
}

/// Returns the part of a message that starts at `offset`.
pub(crate) fn piece_at(message: &[u8], offset: usize) -> ByteBuf {
    let start = offset.min(message.len());
    ByteBuf::from(&message[start..message.len().min(start + PIECE)])
}

/// Wraps a stream of bytes in frames of bounded size.
pub(crate) fn transport<S: AsyncRead + AsyncWrite, Item, SinkItem>(
    stream: S,
) -> Transport<S, Item, SinkItem, MessagePack<Item, SinkItem>>
where
    Item: for<'de> Deserialize<'de>,
    SinkItem: Serialize,
{
    let framed = LengthDelimitedCodec::builder().max_frame_length(FRAME).new_framed(stream);
    serde_transport::new(framed, MessagePack::default())
}

/// Returns the context of a call that is given up after `time`.
pub(crate) fn within(time: Duration) -> Context {
    let mut context = Context::current();
    context.deadline = Instant::now() + time;
    context
}

/// Named values that ranks compare before they train together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    same: Vec<(String, String)>,
    distinct: Vec<(String, String)>,
}

impl Terms {
    /// Adds a value that has to be equal on all ranks, such as a version or the shape of the model. Of a value of several
    /// lines, an error shows the lines that differ.
    #[must_use]
    pub fn same(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.same.push((name.into(), value.into()));
        self
    }

    /// Adds a value that has to differ between the ranks of a host, such as the address of the GPU.
    #[must_use]
    pub fn distinct_on_host(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.distinct.push((name.into(), value.into()));
        self
    }
}

/// Lines of a value that an error shows.
const SHOWN: usize = 8;

/// Returns the lines in which two values differ.
pub(crate) fn differing(value: &str, expected: &str) -> (String, String) {
    let only_in = |text: &str, other: &str| {
        let others: HashSet<_> = other.lines().collect();
        let lines: Vec<_> = text.lines().filter(|line| !others.contains(line)).collect();
        let more = lines.len().saturating_sub(SHOWN);
        let mut shown = lines[..lines.len() - more].join(", ");
        if more > 0 {
            shown += &format!(" and {more} more");
        }
        if shown.is_empty() { "not given".to_owned() } else { shown }
    };
    (only_in(value, expected), only_in(expected, value))
}

/// Rank that asks to join, as it describes itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Applicant {
    pub(crate) rank: usize,
    pub(crate) world_size: usize,
    pub(crate) host: Host,
    /// Identifier of the run, if there is one.
    pub(crate) run: Option<String>,
    pub(crate) terms: Terms,
    /// Random number of the process, which it keeps when it connects again.
    pub(crate) instance: [u8; 32],
}

impl Applicant {
    /// Returns the terms that may not occur twice, with the host.
    pub(crate) fn distinct_terms(&self) -> impl Iterator<Item = (Host, String, String)> {
        self.terms.distinct.iter().map(|(term, value)| (self.host.clone(), term.clone(), value.clone()))
    }

    /// Returns the first difference between this rank and rank 0.
    pub(crate) fn difference(&self, root: &Self) -> Result<(), JoinError> {
        if self.world_size != root.world_size || self.rank >= root.world_size {
            return Err(JoinError::WorldSize {
                rank: self.rank,
                host: self.host.name.clone(),
                world_size: self.world_size,
                expected: root.world_size,
            });
        }
        let value = |terms: &Terms, name: &str| {
            let found = terms.same.iter().find(|(other, _)| other == name);
            found.map_or_else(|| "not given".to_owned(), |(_, value)| value.clone())
        };
        for (term, _) in root.terms.same.iter().chain(&self.terms.same) {
            let (own, expected) = (value(&self.terms, term), value(&root.terms, term));
            if own != expected {
                let (own, expected) = differing(&own, &expected);
                return Err(JoinError::Term {
                    rank: self.rank,
                    host: self.host.name.clone(),
                    term: term.clone(),
                    value: own,
                    expected,
                });
            }
        }
        Ok(())
    }
}

/// Activity of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// The rank computes, waits for data, evaluates or saves.
    #[default]
    Working,
    /// The rank waits for other ranks, or exchanges gradients with them.
    Exchanging,
}

/// Duration of a rank's last step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepTime {
    /// Rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// Number of the step.
    pub step: u64,
    /// Seconds from the end of the last step to the exchange.
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pulse {
    /// Last step and its seconds.
    pub(crate) step: Option<(u64, f64)>,
    pub(crate) activity: Activity,
    /// Time in that activity.
    pub(crate) since: Duration,
}

/// Source of this rank's heartbeats.
pub(crate) struct Heart {
    state: Mutex<(Pulse, Instant)>,
}

impl Heart {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new((Pulse::default(), Instant::now())) }
    }

    pub(crate) fn set_activity(&self, activity: Activity) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.activity != activity {
            state.0.activity = activity;
            state.1 = Instant::now();
        }
    }

    pub(crate) fn record_step(&self, step: u64, seconds: f64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.step = Some((step, seconds));
    }

    pub(crate) fn pulse(&self) -> Pulse {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Pulse { since: state.1.elapsed(), ..state.0 }
    }
}

/// Name of a host, and what distinguishes it from others of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) name: String,
    /// Linux's identifier of the boot; empty elsewhere.
    boot: String,
}

impl Host {
    pub(crate) fn current() -> Self {
        let name = gethostname::gethostname().to_string_lossy().into_owned();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { name, boot: boot.trim().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::differing;

    #[test]
    fn only_lines_that_differ_are_shown() {
        let pair = |value: &str, expected: &str| differing(value, expected);
        let shown = |value: &str, expected: &str| (value.to_owned(), expected.to_owned());
        assert_eq!(pair("0.22", "0.23"), shown("0.22", "0.23"));
        assert_eq!(pair("a = 1\nb = 2\nc = 3", "a = 1\nb = 4\nc = 3"), shown("b = 2", "b = 4"));
        assert_eq!(pair("a = 1", "a = 1\nb = 2"), shown("not given", "b = 2"));
        let many = |first: usize| (0..20).map(|line| format!("{line} = {}\n", first + line)).collect::<String>();
        let (value, expected) = pair(&many(0), &many(1));
        assert_eq!(value, "0 = 0, 1 = 1, 2 = 2, 3 = 3, 4 = 4, 5 = 5, 6 = 6, 7 = 7 and 12 more");
        assert!(expected.starts_with("0 = 1, 1 = 2, "), "{expected}");
    }
}
