//! Reasons why a group does not form, and why it ends before all ranks have finished.

use std::io;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::group::protocol::Applicant;

/// The group did not form.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum JoinError {
    /// Without a secret, strangers could join.
    #[error(
        "rank {rank} on {host} needs a secret, because {because}; set GPU_TUNED_SECRET to the same random text on all ranks, or \
         GPU_TUNED_SECRET_FILE to a file of mode 0600 with that text"
    )]
    SecretRequired { rank: usize, host: String, because: String },
    /// The secrets of the two sides differ.
    #[error(
        "rank {rank} on {host} and rank 0 at {address} have different secrets; set GPU_TUNED_SECRET to the same text on all \
         ranks"
    )]
    WrongSecret { rank: usize, host: String, address: String },
    /// Rank 0 cannot open its port.
    #[error(
        "rank 0 on {host} cannot wait on {address}: {cause}; end the program that uses the port, or set GPU_TUNED_PORT to a \
         free port on all ranks"
    )]
    Bind { host: String, address: String, cause: String },
    /// Rank 0 was not reached in time.
    #[error(
        "rank {rank} on {host} did not reach rank 0 at {address} within {seconds} s: {cause}; is rank 0 running, is \
         MASTER_ADDR right, and does a firewall block the port?"
    )]
    Unreachable {
        rank: usize,
        host: String,
        address: String,
        /// Seconds until the rank gave up.
        seconds: u64,
        cause: String,
    },
    /// Not all ranks joined in time.
    #[error(
        "{joined} of {world_size} ranks joined rank 0 on {host} within {seconds} s; missing: {missing}{refused}; look at the output \
         of the missing ranks"
    )]
    Missing {
        /// Host of rank 0.
        host: String,
        /// Missing ranks, at most 16 of them.
        missing: String,
        joined: usize,
        world_size: usize,
        /// Seconds until rank 0 gave up.
        seconds: u64,
        /// Connections that rank 0 refused, in words; empty if there were none.
        refused: String,
    },
    /// The port of rank 0 belongs to another run.
    #[error(
        "rank {rank} on {host} belongs to {run}, but rank 0 on {root_host} to {other}; wait for the end of that run, or choose \
         another port with GPU_TUNED_PORT"
    )]
    OtherRun {
        rank: usize,
        host: String,
        /// Run of the rank, in words.
        run: String,
        root_host: String,
        /// Run of rank 0, in words.
        other: String,
    },
    /// A rank expects another number of ranks.
    #[error(
        "rank {rank} on {host} expects {world_size} ranks, but rank 0 expects {expected}; start all ranks with the \
         same number"
    )]
    WorldSize { rank: usize, host: String, world_size: usize, expected: usize },
    /// A term differs from that of rank 0.
    #[error(
        "{term} of rank {rank} on {host} is `{value}`, but `{expected}` on rank 0; start the same program with the \
         same settings on all ranks"
    )]
    Term { rank: usize, host: String, term: String, value: String, expected: String },
    /// Two processes have the same rank.
    #[error("two processes are rank {rank}, on {host} and on {other_host}; give each process its own rank")]
    SameRank {
        rank: usize,
        /// Host of the process that joined first.
        host: String,
        /// Host of the other process.
        other_host: String,
    },
    /// Two ranks of a host have the same value where different ones are required.
    #[error(
        "ranks {other} and {rank} on {host} have the same {term}, {value}; give each rank its own: is LOCAL_RANK \
         set for each process?"
    )]
    Shared {
        /// Rank that joined later.
        rank: usize,
        /// Rank that joined first.
        other: usize,
        host: String,
        term: String,
        value: String,
    },
    /// The group has formed already.
    #[error(
        "rank {rank} on {host} is too late: the group has formed already, with another process as that rank; end that run \
         before starting a new one, or choose another port with GPU_TUNED_PORT"
    )]
    Late { rank: usize, host: String },
    /// The operating system refused a thread, a file or random numbers.
    #[error("rank {rank} on {host} cannot connect to the others: {cause}")]
    System { rank: usize, host: String, cause: String },
}

impl JoinError {
    /// A process that belongs to another run asks rank 0 to join.
    pub(crate) fn other_run(applicant: &Applicant, root: &Applicant) -> Self {
        let in_words = |run: &Option<String>| run.as_ref().map_or("no run".to_owned(), |run| format!("run `{run}`"));
        Self::OtherRun {
            rank: applicant.rank,
            host: applicant.host.name.clone(),
            run: in_words(&applicant.run),
            root_host: root.host.name.clone(),
            other: in_words(&root.run),
        }
    }

    /// The operating system refused something.
    pub(crate) fn system(rank: usize, host: &str, cause: &io::Error) -> Self {
        let cause = match cause.raw_os_error() {
            Some(_) => format!("{cause}; look at the limits of this process (`ulimit -a`)"),
            None => cause.to_string(),
        };
        Self::System { rank, host: host.to_owned(), cause }
    }

    /// A rank runs another version of this crate than rank 0.
    pub(crate) fn version(rank: usize, host: String, value: String, expected: String) -> Self {
        Self::Term { rank, host, term: "gpu-tuned's version".to_owned(), value, expected }
    }
}

/// The group has ended: no exchange is possible any more.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum Ended {
    /// A rank reported a failure.
    #[error("rank {rank} on {host} failed: {message}")]
    Failed { rank: usize, host: String, message: String },
    /// A rank panicked.
    #[error("rank {rank} on {host} panicked; the panic's message is in the output of that rank")]
    Panicked { rank: usize, host: String },
    /// The connection to a rank broke.
    #[error(
        "the connection to rank {rank} on {host} broke: its process was killed or ended early, or the network failed; \
         look at the output of that rank and at the host's log (out of memory?)"
    )]
    Lost { rank: usize, host: String },
    /// A rank sent no heartbeat for too long.
    #[error(
        "rank {rank} on {host} has been silent for {seconds} s: its process or host is stopped, or the network failed; \
         look at that host"
    )]
    Silent { rank: usize, host: String, seconds: u64 },
    /// Two ranks took part in different exchanges at one time.
    #[error(
        "rank {rank} on {host} is at `{kind}` while rank {other} on {other_host} is at `{other_kind}`; \
         run the same steps on all ranks"
    )]
    OutOfStep {
        /// Rank that arrived later.
        rank: usize,
        host: String,
        kind: String,
        /// Rank that arrived first.
        other: usize,
        other_host: String,
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
        host: String,
        /// Rank that waits.
        waiting: usize,
        waiting_host: String,
    },
    /// A rank did not arrive in an exchange for too long, though it sends heartbeats.
    #[error(
        "ranks have waited for {seconds} s for rank {rank} on {host}: it hangs, or computes between two steps for longer than \
         `Limits::arrival`; look at its output, or set `Options::rank_limits`"
    )]
    Late {
        rank: usize,
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
        host: String,
        /// Seconds since it arrived.
        seconds: u64,
    },
    /// Ranks have different values where equal ones are required.
    #[error("`{name}` of rank {rank} on {host} is {value}, but {expected} on rank 0; make the ranks' inputs equal")]
    Differs {
        name: String,
        /// First rank that differs from rank 0.
        rank: usize,
        host: String,
        value: String,
        expected: String,
    },
    /// Rank 0 rejected the messages of an exchange.
    #[error("exchange `{kind}` failed on rank 0: {message}")]
    Rejected { kind: String, message: String },
    /// This rank has finished.
    #[error("this rank has finished, so that it cannot exchange any more; call `finish` after the last exchange")]
    Finished,
}
