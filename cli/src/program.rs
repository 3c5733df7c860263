//! The user's program, run by cargo.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::args::{Colour, ProgramArgs};
use crate::error::Error;
use crate::project::Project;

/// The user's program.
pub(crate) struct Program {
    command: Command,
}

/// Which program, and how it is built.
pub(crate) struct Run<'a> {
    pub args: &'a ProgramArgs,
    /// A feature to enable beside those that were asked for.
    pub feature: Option<String>,
}

/// No line is one.
#[derive(Deserialize)]
enum NoReport {}

impl Program {
    /// Built in release mode.
    pub(crate) fn new(project: &Project, colour: Colour, run: Run<'_>) -> Self {
        Self::in_profile(project, colour, run, "release")
    }

    /// Built in this profile.
    pub(crate) fn in_profile(project: &Project, colour: Colour, Run { args, feature }: Run<'_>, profile: &str) -> Self {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command
            .args([
                "run",
                "--color",
                colour.name(),
                "--profile",
                profile,
                "--package",
                project.name(),
                "--manifest-path",
            ])
            .arg(project.manifest());
        for (flag, value) in [("--bin", &args.bin), ("--example", &args.example)] {
            if let Some(value) = value {
                command.args([flag, value]);
            }
        }
        if args.no_default_features {
            command.arg("--no-default-features");
        }
        let features: Vec<String> = args.features.iter().cloned().chain(feature).collect();
        if !features.is_empty() {
            command.args(["--features", &features.join(",")]);
        }
        command.arg("--").args(&args.args);
        Self { command }
    }

    /// The same with a variable in its environment.
    pub(crate) fn with(mut self, (name, value): (&str, impl AsRef<OsStr>)) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it to its end. What it prints passes through to standard error, so that standard output has the report only.
    /// Returns its lines that are such reports.
    pub(crate) fn run<T: DeserializeOwned>(self) -> Result<Vec<T>, Error> {
        let (reports, status) = self.ended()?;
        if status.success() { Ok(reports) } else { Err(Error::ProgramFailed { how: in_words(status), left: "" }) }
    }

    /// Runs it to its end, however that comes. What it prints passes through to standard error.
    pub(crate) fn run_to_end(self) -> Result<ExitStatus, Error> {
        self.ended::<NoReport>().map(|(_, status)| status)
    }

    fn ended<T: DeserializeOwned>(mut self) -> Result<(Vec<T>, ExitStatus), Error> {
        let program = self.command.get_program().display().to_string();
        let failed = |source| Error::Start { program: program.clone(), source };
        let mut child = self.command.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let reports = child.stdout.take().map(|out| forward(out, io::stderr()));
        let status = child.wait().map_err(failed)?;
        Ok((reports.transpose().map_err(failed)?.unwrap_or_default(), status))
    }
}

/// Passes on what is no report, and returns those that are.
fn forward<T: DeserializeOwned>(out: impl Read, mut to: impl Write) -> io::Result<Vec<T>> {
    let mut reports = Vec::new();
    let mut lines = BufReader::new(out);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        match serde_json::from_slice(&line) {
            Ok(report) => reports.push(report),
            // That nobody reads it is no reason to stop.
            Err(_) => drop(to.write_all(&line)),
        }
        line.clear();
    }
    Ok(reports)
}

/// How a program ended.
pub(crate) fn in_words(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit status {code}"),
        None => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::forward;

    #[derive(Deserialize)]
    struct Line {
        workload: String,
        #[serde(rename = "lock")]
        _lock: String,
    }

    #[test]
    fn reports_are_taken_and_the_rest_passes_through() {
        let said = b"epoch 1\n{\"workload\":\"lm\",\"lock\":\"gpu-tuned.lock\",\"measured\":{\"parameters\":1}}\n\
            {\"workload\":\"lm\"}\nno newline \xff";
        let mut passed = Vec::new();
        let reports: Vec<Line> = forward(&said[..], &mut passed).expect("memory can be read");
        assert_eq!(reports.iter().map(|line| line.workload.as_str()).collect::<Vec<_>>(), ["lm"]);
        assert_eq!(passed, b"epoch 1\n{\"workload\":\"lm\"}\nno newline \xff");
    }
}
