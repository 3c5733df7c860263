//! Ends of `monitor`: signals, readers that have seen enough, and files that cannot be written.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use gpu_tuned_observe::recording::read;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::monitor::{looked, on};
use crate::project::{Project, Ran};

/// Starts it with a pipe, and waits for its first line.
fn started(project: &Project, args: &[&str]) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut child = on("training", project, args).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    (child, output, line)
}

#[test]
#[cfg(unix)]
fn signals_end_it_with_its_summary_and_whole_files() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let project = Project::new("bare");
        let args = ["--interval", "100ms", "--record", "run.jsonl", "--csv", "gpu.csv"];
        let (mut child, mut output, first) = started(&project, &args);
        let kill = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(kill.expect("kill is there").success());
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("lines");
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{signal}");
        assert!(first.contains("GPU 0") && rest.contains("Watched for"), "{signal}: {first}{rest}");
        assert_eq!(read(&project.path("run.jsonl")).expect("a recording").torn, [0; 0]);
        assert!(project.read("gpu.csv").ends_with('\n'));
    }
}

/// Both ends of a terminal: the user's, and the program's.
#[cfg(target_os = "linux")]
fn terminal() -> (File, File) {
    let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&user).and_then(|()| unlockpt(&user)).expect("it is ours");
    let name = ptsname(&user, Vec::new()).expect("it has a name").into_string().expect("UTF-8");
    let program = OpenOptions::new().read(true).write(true).open(name).expect("its other end");
    (user.into(), program)
}

/// A monitor with the whole of a terminal, once it shows something.
#[cfg(target_os = "linux")]
fn on_terminal(project: &Project) -> (Child, File) {
    let (mut user, program) = terminal();
    let end = || Stdio::from(program.try_clone().expect("a handle"));
    let mut command = on("training", project, &["--interval", "100ms", "--duration", "60s"]);
    let child = command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end()).spawn().expect("it starts");
    drop(command);
    let mut seen = Vec::new();
    while !seen.ends_with(b"\x1b[?1049h") {
        let mut byte = [0];
        user.read_exact(&mut byte).expect("output");
        seen.extend(byte);
    }
    (child, user)
}

#[test]
#[cfg(target_os = "linux")]
fn the_begin_of_a_key_does_not_keep_the_screen_from_ending() {
    let project = Project::new("bare");
    let (mut child, mut user) = on_terminal(&project);
    user.write_all(b"\x1b[").expect("it is read");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let mut text = Vec::new();
    // A terminal without a program fails to be read.
    drop(user.read_to_end(&mut text));
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("\x1b[?1049l") && text.contains("Watched for"), "{text}");
}

/// A recording is read while it is written, and a table is a stream.
#[test]
#[cfg(unix)]
fn a_pipe_without_a_reader_is_refused_or_left_at_the_first_signal() {
    let project = Project::new("bare");
    let pipe = project.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there").success());
    let said = looked("training", &project, &["--record", "pipe"]).refused(2);
    assert!(said.starts_with("error: cannot write `pipe`: it is a pipe, and a recording is also read"), "{said}");
    let mut child = on("training", &project, &["--csv", "pipe"]).spawn().expect("it starts");
    // Both a command that waits for the pipe and one that starts end by the signal.
    std::thread::sleep(std::time::Duration::from_millis(500));
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let ended = child.wait().expect("it ends");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(15), "{ended}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_terminal_without_bounds_is_refused() {
    use rustix::termios::{Winsize, tcsetwinsize};
    let (_user, program) = terminal();
    let largest = Winsize { ws_row: u16::MAX, ws_col: u16::MAX, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&program, largest).expect("a size");
    let end = || Stdio::from(program.try_clone().expect("a handle"));
    let project = Project::new("bare");
    let mut command = on("training", &project, &["--duration", "10s"]);
    let output = command.env("TERM", "xterm").stdin(end()).stdout(end()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: cannot use the terminal: it reports 65535 columns and 65535 rows"), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_terminal_that_hangs_up_ends_the_screen() {
    let (mut child, user) = on_terminal(&Project::new("bare"));
    drop(user);
    assert_eq!(child.wait().expect("it ends").code(), Some(2));
}

#[test]
fn a_reader_that_has_seen_enough_ends_it() {
    let (mut child, output, first) = started(&Project::new("bare"), &["--interval", "100ms", "--json"]);
    drop(output);
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{first}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_recording_that_cannot_be_written_ends_it() {
    let project = Project::new("bare");
    let said = looked("training", &project, &["--record", "/dev/full"]).refused(2);
    assert!(said.starts_with("error: cannot write `/dev/full`: No space left"), "{said}");
    // The same after a while: no file may have more than a few blocks here, and no signal is raised.
    let command = on("training", &project, &["--interval", "100ms", "--duration", "30s", "--record", "run.jsonl"]);
    let ran = Ran::of(&mut crate::started::behind("trap '' XFSZ; ulimit -f 8", &command));
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: cannot write `run.jsonl`: File too large"), "{}", ran.stderr);
    assert!(ran.stdout.contains("GPU 0"), "{}", ran.stdout);
}
