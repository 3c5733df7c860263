//! End of a group before all ranks have finished.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The group has ended: no exchange is possible any more.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Ended {
    /// A rank reported a failure.
    #[error("rank {rank} on {host} failed: {message}")]
    Failed {
        /// Rank that failed.
        rank: usize,
        /// Its host.
        host: String,
        /// Its message.
        message: String,
    },
    /// A rank panicked.
    #[error("rank {rank} on {host} panicked; the panic's message is in the output of that rank")]
    Panicked {
        /// Rank that panicked.
        rank: usize,
        /// Its host.
        host: String,
    },
    /// The connection to a rank broke.
    #[error(
        "the connection to rank {rank} on {host} broke: its process was killed or ended early, or the network failed; \
         look at the output of that rank and at the host's log (out of memory?)"
    )]
    Lost {
        /// Rank behind the connection.
        rank: usize,
        /// Its host.
        host: String,
    },
    /// A rank sent no heartbeat for too long.
    #[error(
        "rank {rank} on {host} has been silent for {seconds} s: its process or host is stopped, or the network failed; \
         look at that host"
    )]
    Silent {
        /// Silent rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Seconds without a heartbeat.
        seconds: u64,
    },
    /// Two ranks took part in different exchanges at one time.
    #[error(
        "rank {rank} on {host} is at `{kind}` while rank {other} on {other_host} is at `{other_kind}`; \
         run the same steps on all ranks"
    )]
    OutOfStep {
        /// Rank that arrived later.
        rank: usize,
        /// Its host.
        host: String,
        /// Its exchange.
        kind: String,
        /// Rank that arrived first.
        other: usize,
        /// Host of that rank.
        other_host: String,
        /// Exchange of that rank.
        other_kind: String,
    },
    /// A rank finished while another waited for it.
    #[error(
        "rank {rank} on {host} has finished, but rank {waiting} on {waiting_host} is still exchanging; \
         give all ranks the same number of steps, and look for an error in the output of rank {rank}"
    )]
    Uneven {
        /// Rank that finished.
        rank: usize,
        /// Its host.
        host: String,
        /// Rank that waits.
        waiting: usize,
        /// Host of that rank.
        waiting_host: String,
    },
    /// A rank did not arrive in an exchange for too long, though it sends heartbeats.
    #[error(
        "ranks have waited for {seconds} s for rank {rank} on {host}: it hangs, or computes between two steps for longer than \
         `Limits::arrival`; look at its output, or set `Options::rank_limits`"
    )]
    Late {
        /// Rank that did not arrive.
        rank: usize,
        /// Its host.
        host: String,
        /// Seconds since the first rank arrived.
        seconds: u64,
    },
    /// All ranks have been in an exchange for too long, so that no other rank will come.
    #[error(
        "all ranks have been exchanging for {seconds} s, rank {rank} on {host} since the latest time: NCCL or the \
         network hangs; check the links between the GPUs and hosts, and run with NCCL_DEBUG=INFO"
    )]
    Stuck {
        /// Rank that arrived last.
        rank: usize,
        /// Its host.
        host: String,
        /// Seconds since it arrived.
        seconds: u64,
    },
    /// Ranks have different values where equal ones are required.
    #[error("`{name}` of rank {rank} on {host} is {value}, but {expected} on rank 0; make the ranks' inputs equal")]
    Differs {
        /// Name of the value.
        name: String,
        /// First rank that differs from rank 0.
        rank: usize,
        /// Its host.
        host: String,
        /// Its value.
        value: String,
        /// Value of rank 0.
        expected: String,
    },
    /// Rank 0 rejected the messages of an exchange.
    #[error("exchange `{kind}` failed on rank 0: {message}")]
    Rejected {
        /// Exchange.
        kind: String,
        /// Message of rank 0.
        message: String,
    },
    /// This rank has finished.
    #[error("this rank has finished, so that it cannot exchange any more; call `finish` after the last exchange")]
    Finished,
}
