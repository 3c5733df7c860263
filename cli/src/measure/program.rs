//! The user's program, run by cargo.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};

use gpu_tuned_core::lock::Lock;
use serde::Deserialize;

use crate::args::{Colour, MeasureArgs};
use crate::error::Error;
use crate::project::Project;

/// Asks a program to measure itself.
const ASK: (&str, &str) = ("GPU_TUNED_MEASURE", "1");
/// Asks it for a line of JSON on standard output when it has.
const ASK_JSON: (&str, &str) = ("GPU_TUNED_MEASURE_JSON", "1");
/// Says where its lock is.
const LOCK_VARIABLE: &str = "GPU_TUNED_LOCK";

/// The user's program.
pub(super) struct Program {
    command: Command,
}

/// The line that a program prints when it has measured a workload.
#[derive(Deserialize)]
struct Line {
    workload: String,
    #[serde(rename = "lock")]
    _lock: String,
    #[serde(rename = "measured")]
    _measured: serde::de::IgnoredAny,
}

impl Program {
    pub(super) fn new(project: &Project, colour: Colour, args: &MeasureArgs, counting: Option<String>) -> Self {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command
            .args(["run", "--color", colour.name(), "--release", "--package", project.name(), "--manifest-path"])
            .arg(project.manifest());
        for (flag, value) in [("--bin", &args.bin), ("--example", &args.example)] {
            if let Some(value) = value {
                command.args([flag, value]);
            }
        }
        if args.no_default_features {
            command.arg("--no-default-features");
        }
        let features: Vec<String> = args.features.iter().cloned().chain(counting).collect();
        if !features.is_empty() {
            command.args(["--features", &features.join(",")]);
        }
        command.arg("--").args(&args.args);
        command.envs([ASK, ASK_JSON]).env(LOCK_VARIABLE, project.root().join(Lock::NAME));
        Self { command }
    }

    /// Runs it to its end. What it prints passes through to standard error, so that standard output has the report only.
    /// Returns the workloads that it measured.
    pub(super) fn run(mut self) -> Result<Vec<String>, Error> {
        let program = self.command.get_program().display().to_string();
        let failed = |source| Error::Start { program: program.clone(), source };
        let mut child = self.command.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let measured = child.stdout.take().map(|out| forward(out, io::stderr()));
        let status = child.wait().map_err(failed)?;
        let measured = measured.transpose().map_err(failed)?.unwrap_or_default();
        if status.success() { Ok(measured) } else { Err(Error::ProgramFailed { how: in_words(status) }) }
    }
}

/// Passes on what is no report of a measurement, and returns the workloads of those that are.
fn forward(out: impl Read, mut to: impl Write) -> io::Result<Vec<String>> {
    let mut measured = Vec::new();
    let mut lines = BufReader::new(out);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        match serde_json::from_slice::<Line>(&line) {
            Ok(report) => measured.push(report.workload),
            // That nobody reads it is no reason to stop measuring.
            Err(_) => drop(to.write_all(&line)),
        }
        line.clear();
    }
    Ok(measured)
}

fn in_words(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit status {code}"),
        None => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::forward;

    #[test]
    fn reports_are_taken_and_the_rest_passes_through() {
        let said = b"epoch 1\n{\"workload\":\"lm\",\"lock\":\"gpu-tuned.lock\",\"measured\":{\"parameters\":1}}\n\
            {\"workload\":\"lm\"}\nno newline \xff";
        let mut passed = Vec::new();
        let measured = forward(&said[..], &mut passed).expect("memory can be read");
        assert_eq!(measured, ["lm"]);
        assert_eq!(passed, b"epoch 1\n{\"workload\":\"lm\"}\nno newline \xff");
    }
}
