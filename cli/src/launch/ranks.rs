//! The processes of one attempt.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::output::{color_variable, copy};
use crate::error::Error;
use crate::output::{detail, note};
use crate::process::{Children, POLL, Readers, Signal, Stop, describe};

/// Variable with the secret that ranks prove to each other.
const SECRET: &str = "GPU_TUNED_SECRET";
/// Variables of an outer launcher that would change the port of ranks.
const OUTER: [&str; 2] = ["GPU_TUNED_PORT", "TORCHELASTIC_USE_AGENT_STORE"];
/// Exit code of a rank that ends because another rank failed: see `gpu_tuned_ranks::EXIT_CODE`.
const ENDED_BY_ANOTHER: i32 = 75;
/// Time for the other rank to end, too.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Ranks<'a> {
    pub(super) command: &'a [OsString],
    pub(super) count: u32,
    /// True if standard output is for JSON.
    pub(super) to_stderr: bool,
    pub(super) stop: &'a Stop,
}

pub(super) enum Attempt {
    Succeeded,
    /// A signal ended the ranks.
    Stopped {
        signal: i32,
    },
    /// The first rank that failed.
    Failed {
        rank: usize,
        how: String,
        code: u8,
    },
}

impl Ranks<'_> {
    /// Runs all ranks to their end. The first failure ends the others.
    pub(super) fn run(&self) -> Result<Attempt, Error> {
        let failed = |source| Error::StartCommand { program: self.command[0].display().to_string(), source };
        let (mut children, readers) = self.start().map_err(failed)?;
        let first_failure = self.wait(&mut children).map_err(failed)?;
        readers.finish(|| self.stop.is_wanted()).map_err(failed)?;
        Ok(match (first_failure, self.stop.signal()) {
            // Ranks that end well are complete, even after a signal.
            (None, _) => Attempt::Succeeded,
            (_, Some(signal)) => Attempt::Stopped { signal },
            (Some((rank, status)), None) => Attempt::Failed { rank, how: describe(status), code: exit_code(status) },
        })
    }

    fn start(&self) -> io::Result<(Children, Readers)> {
        let variables = self.variables()?;
        let mut readers = Readers::default();
        let mut children = Children::start(&mut self.rank(0, &variables), self.stop)?;
        for rank in 1..self.count {
            children.add(&mut self.rank(rank, &variables))?;
        }
        (0..).zip(children.all()).try_for_each(|(rank, child)| copy(child, rank, self.to_stderr, &mut readers))?;
        Ok((children, readers))
    }

    /// Variables of every rank.
    fn variables(&self) -> io::Result<Vec<(&'static str, String)>> {
        let port = free_port()?;
        detail(|| format!("starts {} ranks of {:?} with 127.0.0.1:{port}", self.count, self.command));
        let count = self.count.to_string();
        let mut variables = vec![
            ("WORLD_SIZE", count.clone()),
            ("LOCAL_WORLD_SIZE", count),
            ("MASTER_ADDR", Ipv4Addr::LOCALHOST.to_string()),
            ("MASTER_PORT", port.to_string()),
            // Never an argument, which other users could see.
            (SECRET, secret()?),
        ];
        variables.extend(color_variable().map(|(name, value)| (name, value.to_owned())));
        Ok(variables)
    }

    fn rank(&self, rank: u32, variables: &[(&str, String)]) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in OUTER {
            command.env_remove(name);
        }
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.envs(["RANK", "LOCAL_RANK"].map(|name| (name, rank.to_string())));
        // The first rank may read a file or a pipe. A terminal would stop a rank that reads from it.
        if rank > 0 || io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        command
    }

    /// Waits for the end of all ranks, and returns the first that failed.
    fn wait(&self, children: &mut Children) -> io::Result<Option<(usize, ExitStatus)>> {
        let (mut is_passed_on, mut failed_at) = (false, None);
        loop {
            let statuses = children.statuses()?;
            let failure = first_failure(&statuses).filter(|(_, status)| {
                let failed_at = failed_at.get_or_insert_with(Instant::now);
                !is_ended_by_another(*status) || !statuses.contains(&None) || failed_at.elapsed() >= CAUSE_TIMEOUT
            });
            if let Some(failure) = failure {
                if statuses.contains(&None) && !self.stop.is_wanted() {
                    note(&format!("rank {} failed; ending the others", failure.0));
                }
                children.end()?;
                return Ok(Some(failure));
            }
            if !statuses.contains(&None) {
                children.end_the_rest()?;
                return Ok(None);
            }
            if let (Some(signal), false) = (self.stop.signal(), is_passed_on) {
                is_passed_on = true;
                children.send(Signal::Passed(signal));
                // A stopped rank receives it only after this.
                children.send(Signal::Cont);
            }
            thread::sleep(POLL);
        }
    }
}

/// The first rank that failed. Of several at once, one that failed by itself comes first.
fn first_failure(statuses: &[Option<ExitStatus>]) -> Option<(usize, ExitStatus)> {
    let all = statuses.iter().enumerate().filter_map(|(rank, status)| Some((rank, (*status)?)));
    all.filter(|(_, status)| !status.success()).min_by_key(|(_, status)| is_ended_by_another(*status))
}

fn is_ended_by_another(status: ExitStatus) -> bool {
    status.code() == Some(ENDED_BY_ANOTHER)
}

/// The exit code, or that of shells for a process that a signal ended.
fn exit_code(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal);
    #[cfg(not(unix))]
    let signal = None;
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 0).unwrap_or(u8::MAX)
}

/// Finds two free ports in a row: the ranks take the first, and NCCL the second. Linux gives higher ports to connections.
fn free_port() -> io::Result<u16> {
    const FIRST: u32 = 15_000;
    const COUNT: u32 = 17_000;
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(drop);
    // Launches at one time begin at different ports.
    let begin = std::process::id().wrapping_mul(2);
    let pairs = (0..COUNT / 2).map(|pair| FIRST + begin.wrapping_add(2 * pair) % COUNT);
    let mut ports = pairs.filter_map(|port| u16::try_from(port).ok());
    let free = ports.find_map(|port| match bind(port).and_then(|()| bind(port + 1)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
        bound => Some(bound.map(|()| port)),
    });
    free.unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))
}

/// 256 random bits in hexadecimal digits.
fn secret() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
