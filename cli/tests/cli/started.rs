//! A command with a program that it has started.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

/// Time for a program to end without being killed: below the ten seconds after which `diagnose` kills it.
const LONGEST: Duration = Duration::from_secs(9);
/// Time for a program to print a line, on a busy machine.
const PRINTED: Duration = Duration::from_mins(1);

/// True if a process runs. A zombie does not.
pub(crate) fn runs(process: Pid) -> bool {
    let number = process.as_raw_nonzero().to_string();
    let stat = Command::new("ps").args(["-o", "stat=", "-p", &number]).output().expect("there is a ps");
    let state = String::from_utf8_lossy(&stat.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

/// True once a process that was killed has ended, which takes a busy machine a moment.
pub(crate) fn is_gone(process: Pid) -> bool {
    (0..100).any(|_| {
        let is_gone = !runs(process);
        if !is_gone {
            thread::sleep(Duration::from_millis(20));
        }
        is_gone
    })
}

/// The process id in a line such as `worker 4711`, also behind the number of a rank.
pub(crate) fn worker(line: &str) -> Option<Pid> {
    Pid::from_raw(line.trim().split_once("worker ")?.1.parse().ok()?)
}

/// The command in a process group of its own, as from a terminal, and the worker of the program that it has started.
/// Nothing of it stays behind when a test fails.
pub(crate) struct Started {
    pub(crate) command: Child,
    pub(crate) worker: Pid,
    program: Pid,
    pub(crate) said: Receiver<String>,
}

impl Started {
    pub(crate) fn new(command: &mut Command) -> Self {
        let command = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = command.spawn().expect("it starts");
        let lines = BufReader::new(command.stderr.take().expect("its standard error")).lines().map_while(Result::ok);
        let (sender, said) = channel();
        // Somebody has to read it all, also when nobody asks any more.
        thread::spawn(|| lines.for_each(move |line| drop(sender.send(line))));
        let worker = said.iter().find_map(|line| worker(&line)).expect("there is a worker");
        let program = getpgid(Some(worker)).unwrap_or(worker);
        Self { command, worker, program, said }
    }

    /// Such as Ctrl-C at the terminal, which the group in its foreground hears.
    pub(crate) fn send(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.command), signal).expect("it is there");
    }

    pub(crate) fn says(&self, word: &str) {
        while self.said.recv_timeout(PRINTED).expect("it is said") != word {}
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        for _ in 0..LONGEST.as_millis() / 10 {
            if let Some(status) = self.command.try_wait().expect("it can be asked") {
                return status;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("it went on");
    }

    pub(crate) fn printed(&mut self) -> serde_json::Value {
        let out: ChildStdout = self.command.stdout.take().expect("its standard output");
        serde_json::from_reader(out).expect("JSON")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = kill_process_group(self.program, Signal::KILL);
            let _ = kill_process(self.worker, Signal::KILL);
            let _ = self.command.kill();
        }
    }
}

/// A command whose program prints `asleep`, once that is printed, and the lines of its standard error that follow.
pub(crate) fn asleep(command: &mut Command) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let mut lines = BufReader::new(child.stderr.take().expect("its standard error")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "asleep"), "the program never ran");
    (child, lines)
}

/// Runs a line of a shell.
pub(crate) fn shell(line: &str) {
    assert!(Command::new("sh").args(["-c", line]).status().expect("there is a shell").success(), "{line}");
}

/// A command behind a line of a shell that prepares the process.
#[cfg(target_os = "linux")]
pub(crate) fn behind(line: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{line}; exec \"$0\" \"$@\"")]).arg(command.get_program()).args(command.get_args());
    shell.current_dir(command.get_current_dir().expect("the folder of a package"));
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

/// A command on a terminal of its own. Its words are those of a shell.
#[cfg(target_os = "linux")]
pub(crate) fn on_terminal(command: &Command) -> Command {
    let words: Vec<_> = [command.get_program()].into_iter().chain(command.get_args()).collect();
    let line = words.iter().map(|word| word.to_str().expect("UTF-8")).collect::<Vec<_>>().join(" ");
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    terminal.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    terminal
}
