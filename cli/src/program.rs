//! The user's program, run by cargo.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::args::{Colour, ProgramArgs};
use crate::child::Started;
use crate::error::Error;
use crate::project::Project;
use crate::stop::Stop;

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
    pub(crate) fn new(project: &Project, colour: Colour, run: Run<'_>) -> Result<Self, Error> {
        Self::in_profile(project, colour, run, "release")
    }

    /// Built in this profile.
    pub(crate) fn in_profile(
        project: &Project,
        colour: Colour,
        Run { args, feature }: Run<'_>,
        profile: &str,
    ) -> Result<Self, Error> {
        project.refuse_broken_structs()?;
        if args.bin.is_none() && args.example.is_none() {
            project.has_one_program()?;
        }
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
        Ok(Self { command })
    }

    /// The same with a variable in its environment.
    pub(crate) fn with(mut self, (name, value): (&str, impl AsRef<OsStr>)) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it to its end. What it prints passes through to standard error, so that standard output has the report only.
    /// Returns its lines that are such reports.
    pub(crate) fn run<T: DeserializeOwned + Send + 'static>(self) -> Result<Vec<T>, Error> {
        let (reports, status) = self.ended()?;
        if status.success() { Ok(reports) } else { Err(Error::ProgramFailed { how: in_words(status), left: "" }) }
    }

    /// Runs it to its end, however that comes. What it prints passes through to standard error.
    pub(crate) fn run_to_end(self) -> Result<ExitStatus, Error> {
        self.ended::<NoReport>().map(|(_, status)| status)
    }

    fn ended<T: DeserializeOwned + Send + 'static>(mut self) -> Result<(Vec<T>, ExitStatus), Error> {
        let program = self.command.get_program().display().to_string();
        let failed = |source| Error::Start { program: program.clone(), source };
        let stop = Stop::on_signals().map_err(Error::Signals)?;
        let mut started = Started::new(&mut self.command, &stop).map_err(failed)?;
        let (told, reports) = channel();
        let ended = started.wait(None, move |out| forward(out, io::stderr(), &told)).map_err(failed)?;
        // One that has ended by itself has done all that it was asked for, whatever somebody wants by now.
        match stop.signal().filter(|_| ended.was_stopped) {
            Some(signal) => Err(Error::Stopped { signal, left: "" }),
            None => Ok((reports.try_iter().collect(), ended.status)),
        }
    }
}

/// Passes on what is no report, and tells those that are.
fn forward<T: DeserializeOwned>(out: impl Read, mut to: impl Write, reports: &Sender<T>) -> io::Result<()> {
    let mut lines = BufReader::new(out);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        // That nobody reads it is no reason to stop.
        match serde_json::from_slice(&line) {
            Ok(report) => drop(reports.send(report)),
            Err(_) => drop(to.write_all(&line)),
        }
        line.clear();
    }
    Ok(())
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
    use std::sync::mpsc::channel;

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
        let (told, reports) = channel::<Line>();
        forward(&said[..], &mut passed, &told).expect("memory can be read");
        assert_eq!(reports.try_iter().map(|line| line.workload).collect::<Vec<_>>(), ["lm"]);
        assert_eq!(passed, b"epoch 1\n{\"workload\":\"lm\"}\nno newline \xff");
    }
}
