//! Ends of `monitor`: signals, readers that have seen enough, and files that cannot be written.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use gpu_tuned_observe::recording::read;

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

#[test]
fn a_reader_that_has_seen_enough_ends_it() {
    let (mut child, output, first) = started(&Project::new("bare"), &["--interval", "100ms", "--json"]);
    drop(output);
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{first}");
}

#[test]
fn a_gpu_that_a_recording_lacks_is_refused_with_those_that_it_has() {
    let project = Project::new("bare");
    let gpu = |number: u32| format!("{{\"kind\":\"gpu\",\"at\":1.0,\"gpu\":{number},\"utilisation_percent\":5.0}}\n");
    project.write("run.jsonl", &(gpu(0) + &gpu(2)));
    let replay = |gpu: &str| project.run(&["monitor", "--replay", "run.jsonl", "--gpu", gpu]);
    assert!(replay("2").ended(0).contains("GPU 2"));
    assert_eq!(replay("5").refused(2), "error: there is no GPU 5\n  help: the recording has 0, 2\n");
    project.write("run.jsonl", "{\"kind\":\"host\",\"at\":1.0}\n");
    assert_eq!(replay("0").refused(2), "error: there is no GPU 0\n  help: the recording has none\n");
}

#[test]
#[cfg(target_os = "linux")]
fn a_recording_that_cannot_be_written_ends_it() {
    let project = Project::new("bare");
    let said = looked("training", &project, &["--record", "/dev/full"]).refused(2);
    assert!(said.starts_with("error: cannot write `/dev/full`: No space left"), "{said}");
    // The same after a while: no file may have more than a few blocks here, and no signal is raised.
    let command = on("training", &project, &["--interval", "100ms", "--duration", "30s", "--record", "run.jsonl"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""]).arg(command.get_program());
    limited.args(command.get_args()).current_dir(project.path(""));
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = Ran::of(&mut limited);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: cannot write `run.jsonl`: File too large"), "{}", ran.stderr);
    assert!(ran.stdout.contains("GPU 0"), "{}", ran.stdout);
}
