//! `cargo gpu-tuned launch`.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use gpu_tuned_nvml::detect;
use gpu_tuned_ranks::Launched;
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::args::{Common, number};
use crate::error::Error;
use crate::output::{Answer, Code, FAINT, detail, note, styled};
use crate::process::{Children, POLL, PassedOn, Readers, Signal, Stop, describe};

/// Start a program as several ranks on this machine, one process for each GPU
///
/// Each process gets the variables of torchrun: `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `MASTER_ADDR` and
/// `MASTER_PORT`. A program with feature `distributed` of gpu-tuned then trains on all GPUs together. Each line of output
/// begins with the number of its rank.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("launch/help.txt"))]
pub(crate) struct LaunchArgs {
    /// Number of processes, up to 1024; without it, one for each GPU, or one without a GPU
    #[arg(long, value_name = "NUMBER", value_parser = rank_count)]
    ranks: Option<u32>,
    /// Name of the run: ranks of another run are refused
    #[arg(long, value_name = "NAME")]
    run_id: Option<String>,
    /// Start all ranks again after a failure, up to so many times
    #[arg(long, value_name = "NUMBER", value_parser = number::<u32>, default_value = "0")]
    restarts: u32,
    /// Program to start, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn rank_count(text: &str) -> Result<u32, String> {
    let count = number(text).ok().filter(|count| (1..=1024).contains(count));
    count.ok_or_else(|| "expected a number from 1 to 1024".to_owned())
}

#[derive(Serialize)]
struct Report {
    ranks: u32,
    restarts: u32,
    seconds: f64,
}

pub(crate) fn run(common: &Common, args: &LaunchArgs) -> Result<Answer, Error> {
    refuse_copies()?;
    let stop = Stop::on_signals()?;
    let begin = Instant::now();
    let count = args.ranks.unwrap_or_else(|| u32::try_from(detect().gpus.len()).unwrap_or(u32::MAX).max(1));
    allow_files(count)?;
    let run_id = args.run_id.as_deref();
    let passed_on = PassedOn::listen()?;
    let ranks = Ranks { command: &args.command, count, run_id, to_stderr: common.json, stop: &stop, passed_on };
    let mut restarts = 0;
    loop {
        match ranks.run()? {
            Attempt::Succeeded => break,
            Attempt::Saved => return Err(Error::RanksSaved),
            Attempt::Stopped { signal } => return Err(Error::Stopped { signal, left: "" }),
            Attempt::Failed { rank, how, .. } if restarts < args.restarts => {
                restarts += 1;
                note(&format!("rank {rank} failed: {how}; restart {restarts} of {}", args.restarts));
            }
            Attempt::Failed { rank, how, code } => return Err(Error::RankFailed { rank, how, code, restarts }),
        }
    }
    let report = Report { ranks: count, restarts, seconds: begin.elapsed().as_secs_f64() };
    Ok(Answer::new(("launch", common.json), &report, String::new, Vec::new(), Code::Ok))
}

/// Refuses to run as one of several processes of a launcher, each of which would start a training of its own.
fn refuse_copies() -> Result<(), Error> {
    match Launched::from_env().filter(|launched| launched.world_size > 1) {
        Some(Launched { world_size, variable }) if std::env::var_os(INDEPENDENT).is_none_or(|value| value != "1") => {
            Err(Error::LaunchedCopies { world_size, variable })
        }
        _ => Ok(()),
    }
}

/// Variable that allows processes of a launcher to train on their own: see `gpu_tuned::Options::INDEPENDENT_VARIABLE`.
const INDEPENDENT: &str = "GPU_TUNED_INDEPENDENT";
const SECRET_FILE: &str = "GPU_TUNED_SECRET_FILE";
const RUN_ID: &str = "GPU_TUNED_RUN_ID";
/// Variables of an outer launcher that would change the port of ranks, or their secret.
const OUTER: [&str; 3] = ["GPU_TUNED_PORT", "TORCHELASTIC_USE_AGENT_STORE", "GPU_TUNED_SECRET"];
/// Exit code of a rank that ends because another rank failed: see `gpu_tuned_ranks::EXIT_CODE`.
const ENDED_BY_ANOTHER: i32 = 75;
/// Exit code of a rank that saved a checkpoint after a signal: see `gpu_tuned::Checkpoints::EXIT_CODE`.
pub(crate) const SAVED: u8 = 99;
/// Time for the other rank to end, too.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(2);

struct Ranks<'a> {
    command: &'a [OsString],
    count: u32,
    run_id: Option<&'a str>,
    /// True if standard output is for JSON.
    to_stderr: bool,
    stop: &'a Stop,
    passed_on: PassedOn,
}

enum Attempt {
    Succeeded,
    /// The ranks saved a checkpoint after a signal.
    Saved,
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
    fn run(&self) -> Result<Attempt, Error> {
        let failed = |source| Error::StartCommand { program: self.command[0].display().to_string(), source };
        let port = free_port().map_err(failed)?;
        let secret = secret().map_err(failed)?;
        let (mut children, readers) = self.start(port, secret.path()).map_err(failed)?;
        let first_failure = self.wait(&mut children).map_err(failed)?;
        readers.finish(|| self.stop.is_wanted()).map_err(failed)?;
        Ok(match (first_failure, self.stop.signal()) {
            // Ranks that end well are complete, even after a signal.
            (None, _) => Attempt::Succeeded,
            (Some((_, status)), _) if severity(status) == Severity::Saved => Attempt::Saved,
            (_, Some(signal)) => Attempt::Stopped { signal },
            (Some((rank, status)), None) => Attempt::Failed { rank, how: describe(status), code: exit_code(status) },
        })
    }

    fn start(&self, port: u16, secret: &Path) -> io::Result<(Children, Readers)> {
        let variables = self.variables(port, secret);
        let mut readers = Readers::default();
        let mut children = Children::start(&mut self.rank(0, &variables), self.stop)?;
        for rank in 1..self.count {
            children.add(&mut self.rank(rank, &variables))?;
        }
        (0..).zip(children.all()).try_for_each(|(rank, child)| copy(child, rank, self.to_stderr, &mut readers))?;
        Ok((children, readers))
    }

    fn variables(&self, port: u16, secret: &Path) -> Vec<(&'static str, OsString)> {
        detail(|| format!("starts {} ranks of {:?} with 127.0.0.1:{port}", self.count, self.command));
        let count = OsString::from(self.count.to_string());
        let mut variables = vec![
            ("WORLD_SIZE", count.clone()),
            ("LOCAL_WORLD_SIZE", count),
            ("MASTER_ADDR", Ipv4Addr::LOCALHOST.to_string().into()),
            ("MASTER_PORT", port.to_string().into()),
            // Programs print arguments and environments, so that others could see the secret itself.
            (SECRET_FILE, secret.into()),
        ];
        variables.extend(self.run_id.map(|name| (RUN_ID, name.into())));
        variables.extend(color_variable().map(|(name, value)| (name, value.into())));
        variables
    }

    fn rank(&self, rank: u32, variables: &[(&str, OsString)]) -> Command {
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
                severity(*status) == Severity::Failed
                    || !statuses.contains(&None)
                    || failed_at.elapsed() >= CAUSE_TIMEOUT
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
            self.passed_on.take().try_for_each(|signal| children.send_to_each(signal))?;
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
    all.filter(|(_, status)| !status.success()).min_by_key(|(_, status)| severity(*status))
}

/// Reason of an exit code other than 0, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Failed,
    EndedByAnother,
    Saved,
}

fn severity(status: ExitStatus) -> Severity {
    match status.code() {
        Some(ENDED_BY_ANOTHER) => Severity::EndedByAnother,
        Some(code) if code == i32::from(SAVED) => Severity::Saved,
        _ => Severity::Failed,
    }
}

/// The exit code, or that of shells for a process that a signal ended.
fn exit_code(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal);
    #[cfg(not(unix))]
    let signal = None;
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 0).unwrap_or(u8::MAX)
}

/// Finds a free port on which the first rank waits. Linux gives higher ports to connections.
fn free_port() -> io::Result<u16> {
    const FIRST: u32 = 15_000;
    const COUNT: u32 = 17_000;
    // Launches at one time begin at different ports.
    let begin = std::process::id();
    let ports = (0..COUNT).filter_map(|port| u16::try_from(FIRST + begin.wrapping_add(port) % COUNT).ok());
    let mut bound = ports.map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(|_| port));
    let free = bound.find(|bound| !matches!(bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse));
    free.unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))
}

/// Writes 256 random bits in hexadecimal digits to a file that only this user can read, until it is dropped.
fn secret() -> io::Result<NamedTempFile> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes)?;
    let mut file = tempfile::Builder::new().prefix("gpu-tuned-secret-").tempfile()?;
    file.write_all(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().as_bytes())?;
    Ok(file)
}

/// Raises the limit of open files, if it is too low for the output of so many ranks.
#[cfg(unix)]
fn allow_files(ranks: u32) -> Result<(), Error> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    /// Files of this command, and of a rank that starts.
    const OWN: u64 = 64;
    let needed = 2 * u64::from(ranks) + OWN;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum });
    raised.map_err(|_| Error::OpenFiles { ranks, needed, limit: maximum.or(current).unwrap_or_default() })
}

/// Other systems have no such limit.
#[cfg(not(unix))]
fn allow_files(_: u32) -> Result<(), Error> {
    Ok(())
}

/// Longest part of a line that is printed at once, in bytes. A longer line is printed in parts, so that memory is bounded.
const LONGEST: u64 = 64 << 10;

/// Starts to copy the output and the errors of a rank. With `to_stderr` both go to standard error.
fn copy(child: &mut Child, rank: u32, to_stderr: bool, readers: &mut Readers) -> io::Result<()> {
    let on_stderr = prefix(rank, &io::stderr());
    if let Some(errors) = child.stderr.take() {
        let prefix = on_stderr.clone();
        readers.add(errors, move |errors| lines(errors, &prefix, io::stderr()))?;
    }
    let Some(out) = child.stdout.take() else { return Ok(()) };
    let prefix = if to_stderr { on_stderr } else { prefix(rank, &io::stdout()) };
    let copied =
        move |out| if to_stderr { lines(out, &prefix, io::stderr()) } else { lines(out, &prefix, io::stdout()) };
    readers.add(out, copied)
}

fn has_colors(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

fn prefix(rank: u32, stream: &impl RawStream) -> String {
    let prefix = format!("[{rank}]");
    (if has_colors(stream) { styled(FAINT, prefix) } else { prefix }) + " "
}

/// Variable that keeps the colors of programs whose output goes through pipes, or leaves colors out.
fn color_variable() -> Option<(&'static str, &'static str)> {
    if has_colors(&io::stdout()) && has_colors(&io::stderr()) {
        Some(("CLICOLOR_FORCE", "1"))
    } else {
        (ColorChoice::global() == ColorChoice::Never).then_some(("NO_COLOR", "1"))
    }
}

/// Copies lines with a prefix, until the destination is closed: then the rank finds its pipe closed, too.
fn lines(out: impl Read, prefix: &str, mut to: impl Write) -> io::Result<()> {
    let mut out = BufReader::new(out);
    let mut line = Vec::new();
    loop {
        line.extend_from_slice(prefix.as_bytes());
        if out.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        // One call, so that lines of several ranks do not mix.
        if to.write_all(&line).is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return Ok(());
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, lines};

    fn copied(text: &[u8]) -> Vec<u8> {
        let mut copied = Vec::new();
        lines(text, "[3] ", &mut copied).expect("memory can be read");
        copied
    }

    #[test]
    fn every_line_has_its_rank_and_an_end() {
        assert_eq!(copied(b""), b"");
        assert_eq!(copied(b"a\n\n\xff\r\nno newline"), b"[3] a\n[3] \n[3] \xff\r\n[3] no newline\n");
    }

    #[test]
    fn lines_without_an_end_are_printed_in_parts() {
        let longest = usize::try_from(LONGEST).expect("a length");
        let text = copied(&vec![b'x'; 2 * longest + 5]);
        let lengths: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).collect();
        assert_eq!(lengths, [longest + 5, longest + 5, 10]);
    }
}
