//! The user's program, run by cargo.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use clap::ColorChoice;
use gpu_tuned_core::Pins;
use gpu_tuned_nvml::detect;
use gpu_tuned_project::lock::Lock;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::args::{Common, ProgramArgs};
use crate::error::Error;
use crate::output::{detail, note, verbosity};
use crate::process::{Started, Stop, describe};
use crate::project::Project;

pub(crate) struct Program {
    command: Command,
}

pub(crate) struct Run<'a> {
    pub args: &'a ProgramArgs,
    /// Features to enable beside the requested ones.
    pub features: Vec<String>,
}

/// A type without values: no line is a report.
#[derive(Deserialize)]
enum NoReport {}

impl Program {
    /// A program in a release build.
    pub(crate) fn new(project: &Project, color: ColorChoice, run: Run<'_>) -> Result<Self, Error> {
        Self::in_profile(project, color, run, "release")
    }

    /// A program in a build with this profile of cargo.
    pub(crate) fn in_profile(
        project: &Project,
        color: ColorChoice,
        Run { args, features }: Run<'_>,
        profile: &str,
    ) -> Result<Self, Error> {
        project.refuse_broken_structs()?;
        if args.bin.is_none() && args.example.is_none() {
            project.has_one_program()?;
        }
        let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        // Cargo takes a separate value such as `-1` for an option.
        let option = |name: &str, value: &OsStr| OsString::from_iter([OsStr::new(name), "=".as_ref(), value]);
        command.args(["run", "--color", &color.to_string(), "--package", project.name()]);
        command.arg(option("--profile", profile.as_ref())).arg("--manifest-path").arg(project.manifest());
        for (name, value) in [("--bin", &args.bin), ("--example", &args.example)] {
            command.args(value.as_ref().map(|value| option(name, value.as_ref())));
        }
        command.args(args.of_cargo());
        for (flag, is_given) in
            [("--all-features", args.all_features), ("--no-default-features", args.no_default_features)]
        {
            command.args(is_given.then_some(flag));
        }
        if let Some(folder) = &args.target_dir {
            command.arg(option("--target-dir", folder.as_os_str()));
        }
        command.args(verbosity().of_cargo());
        let features: Vec<String> = args.features.iter().cloned().chain(features).collect();
        if !features.is_empty() {
            command.arg(option("--features", features.join(",").as_ref()));
        }
        command.arg("--").args(&args.args);
        Ok(Self { command })
    }

    /// Adds variables to the environment.
    pub(crate) fn with<'a>(mut self, variables: impl IntoIterator<Item = (&'a str, impl AsRef<OsStr>)>) -> Self {
        self.command.envs(variables);
        self
    }

    /// Runs the program to a successful end, and returns the reports among its lines. Other lines go to standard error.
    pub(crate) fn run<T: DeserializeOwned + Send + 'static>(self) -> Result<Vec<T>, Error> {
        let (reports, status) = self.run_any()?;
        if status.success() { Ok(reports) } else { Err(Error::ProgramFailed { how: describe(status), left: "" }) }
    }

    /// Runs the program to its end, successful or not. Its output goes to standard error.
    pub(crate) fn run_to_end(self) -> Result<ExitStatus, Error> {
        self.run_any::<NoReport>().map(|(_, status)| status)
    }

    /// Returns true if cargo can build the program. Its messages were printed before.
    fn builds(&self) -> bool {
        let of_build = self.command.get_args().skip(1).take_while(|arg| *arg != "--");
        let mut build = Command::new(self.command.get_program());
        build.arg("build").args(of_build).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => build.env(name, value),
                None => build.env_remove(name),
            };
        }
        build.status().is_ok_and(|status| status.success())
    }

    fn run_any<T: DeserializeOwned + Send + 'static>(mut self) -> Result<(Vec<T>, ExitStatus), Error> {
        let program = self.command.get_program().display().to_string();
        detail(|| format!("runs {:?}", self.command));
        let failed = |source| Error::Start { program: program.clone(), source };
        let stop = Stop::on_signals()?;
        let mut started = Started::new(&mut self.command, &stop).map_err(failed)?;
        let (sender, reports) = channel();
        let ended = started.wait(None, move |out| forward(out, io::stderr(), &sender)).map_err(failed)?;
        // A program that has ended by itself is complete, even after a signal.
        match stop.signal().filter(|_| ended.was_stopped) {
            Some(signal) => Err(Error::Stopped { signal, left: "" }),
            None if ended.status.code() == Some(CARGO_FAILED) && !self.builds() => Err(Error::NotBuilt),
            None => Ok((reports.try_iter().collect(), ended.status)),
        }
    }
}

/// Exit code of cargo where it cannot build, and of a program that panics.
const CARGO_FAILED: i32 = 101;

/// Feature of the runtime that counts memory on the CPU.
const COUNTING: &str = "counting-allocator";
/// Variable that makes a program measure itself.
const MEASURE: (&str, &str) = ("GPU_TUNED_MEASURE", "1");
/// Variable that makes it print a line of JSON for each workload.
const MEASURE_JSON: (&str, &str) = ("GPU_TUNED_MEASURE_JSON", "1");
const BUDGET_VARIABLE: &str = "GPU_TUNED_MEASURE_BUDGET";
const LOCK_VARIABLE: &str = "GPU_TUNED_LOCK";

/// Line that a program prints for a measured workload.
#[derive(Deserialize)]
struct Line {
    workload: String,
    #[serde(rename = "lock")]
    _lock: String,
    #[serde(rename = "measured")]
    _measured: serde::de::IgnoredAny,
    /// Settings that the planner compares with the measured ones, each for a process of its own, as
    /// [`Pins::VARIABLE`] has them.
    other_settings: Vec<String>,
}

/// Runs the program so that it measures itself, once with each kernels and precision that the planner compares, and returns
/// the workloads that it measured. `features` are enabled beside the requested ones; `budget` limits the time of each run.
pub(crate) fn measure(
    project: &Project,
    common: &Common,
    args: &ProgramArgs,
    mut features: Vec<String>,
    budget: Option<Duration>,
) -> Result<Vec<String>, Error> {
    features.extend(counting_feature(project, args)?);
    // A process computes with one precision and one kind of kernels.
    let with_settings = |settings: Option<&str>| -> Result<Vec<Line>, Error> {
        let program = Program::new(project, common.color, Run { args, features: features.clone() })?;
        let lock = (LOCK_VARIABLE, project.root.join(Lock::NAME));
        let budget = budget.map(|time| (BUDGET_VARIABLE, time.as_secs_f64().ceil().to_string()));
        let program = program.with([MEASURE, MEASURE_JSON]).with([lock]).with(settings.map(set_with)).with(budget);
        let lines = program.run::<Line>();
        lines.map_err(|error| error.leaving("; gpu-tuned.lock is complete up to the last measured batch"))
    };
    let mut lines = with_settings(None)?;
    let mut others: Vec<String> = Vec::new();
    for settings in lines.iter().flat_map(|line| &line.other_settings) {
        if !others.contains(settings) {
            others.push(settings.clone());
        }
    }
    for settings in &others {
        note(&format!("measuring with {settings}, which the planner compares with the planned settings"));
        match with_settings(Some(settings)) {
            Ok(measured) => lines.extend(measured),
            // A model that is not ready for 16 bits, for example: the plan then takes what was measured.
            Err(Error::ProgramFailed { how, .. }) => note(&format!(
                "{settings} was not measured ({how}): builds plan with what was measured, until the error above is mended"
            )),
            Err(error) => return Err(error),
        }
    }
    let workloads: BTreeSet<_> = lines.into_iter().map(|line| line.workload).collect();
    Ok(workloads.into_iter().collect())
}

/// Variable with the settings that the user pins for this start, and others.
pub(crate) fn set_with(others: &str) -> (&'static str, OsString) {
    let mut set = env::var_os(Pins::VARIABLE).unwrap_or_default();
    if !set.is_empty() {
        set.push(",");
    }
    set.push(others);
    (Pins::VARIABLE, set)
}

/// The feature that counts memory, where there is no GPU and the package can enable it.
pub(crate) fn counting_feature(project: &Project, args: &ProgramArgs) -> Result<Option<String>, Error> {
    if !detect().gpus.is_empty() {
        return Ok(None);
    }
    Ok(project.runtime_with_feature(COUNTING, args)?.map(|name| format!("{name}/{COUNTING}")))
}

/// Longest line that is kept to find a report in it, in bytes.
const LONGEST: usize = 16 << 20;

/// Sends reports, which are lines that begin with a brace. Copies everything else as it comes, so that progress is shown and
/// memory is bounded. A closed destination is ignored.
fn forward<T: DeserializeOwned>(out: impl Read, mut to: impl Write, reports: &Sender<T>) -> io::Result<()> {
    let mut out = BufReader::new(out);
    let (mut line, mut is_copied) = (Vec::new(), false);
    loop {
        let part = match out.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            part => part?,
        };
        let end = part.iter().position(|byte| *byte == b'\n').map_or(part.len(), |at| at + 1);
        let part = &part[..end];
        let is_end = part.is_empty() || part.ends_with(b"\n");
        is_copied |= line.is_empty() && !part.starts_with(b"{") || line.len() > LONGEST;
        line.extend_from_slice(part);
        let is_over = part.is_empty();
        out.consume(end);
        if is_copied || is_end {
            match serde_json::from_slice(&line) {
                Ok(report) if !is_copied => drop(reports.send(report)),
                _ => drop(to.write_all(&line)),
            }
            line.clear();
            is_copied &= !is_end;
        }
        if is_over {
            return Ok(());
        }
    }
}
