//! Calls between a rank and rank 0.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tarpc::context::Context;
use tarpc::serde_transport::{self, Transport};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_serde::formats::MessagePack;
use tokio_util::codec::LengthDelimitedCodec;

use crate::ended::Ended;
use crate::host::Host;
use crate::join_error::JoinError;
use crate::pulse::Pulse;
use crate::terms::Applicant;

/// Bytes of the largest piece of a message.
pub(crate) const PIECE: usize = 256 * 1024;
/// Bytes of the largest frame: a piece or the terms of a rank.
const FRAME: usize = 1024 * 1024;
/// Calls that wait for other ranks are repeated after so long.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
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
    /// Ends the group.
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

/// Part of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// Number of the exchange, from 0.
    pub(crate) meeting: u64,
    pub(crate) kind: String,
    /// Bytes of the whole message.
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
