//! Errors of the modules below the commands.

use std::io;
use std::path::PathBuf;

use gpu_tuned_attribute::sources::ConfigFileError;
use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::source::FileError;
use gpu_tuned_project::config::PairsError;
use thiserror::Error;

use crate::output::Code;
use crate::stdio::quoted;

#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error("{message}")]
    Metadata { message: String },
    #[error("no Cargo.toml in this folder or above it\n  help: name one with --manifest-path")]
    NoManifest,
    #[error("there is no package `{name}` in the workspace{hint}")]
    NoPackage { name: String, hint: String },
    #[error(
        "the workspace has several packages\n  help: name one with -p: {}",
        names.join(", ")
    )]
    SeveralPackages { names: Vec<String> },
    #[error("`{package}` has no program to run: it is a library")]
    NoProgram { package: String },
    #[error("`{package}` has no binary\n  help: name the example that trains: --example {}", names.join(", "))]
    ExamplesOnly { package: String, names: Vec<String> },
    #[error("`{package}` has several binaries\n  help: name one with --bin: {}", names.join(", "))]
    SeveralPrograms { package: String, names: Vec<String> },
    #[error("cannot read {}: {source}", quoted(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has no records\n  help: {RECORD_HELP}", quoted(path), RECORD_HELP = RECORD_HELP)]
    EmptyRecording { path: PathBuf },
    #[error("standard input, `-`, can be read once\n  help: name a file for the other input")]
    TwiceStandardInput,
    /// Mistakes in files, each with its place and the text of its file.
    #[error("{}", mistakes.iter().map(|(mistake, _)| mistake.to_string()).collect::<Vec<_>>().join("\n"))]
    Files { mistakes: Vec<(FileError, String)> },
    #[error(
        "`{package}` has no workload\n  help: annotate its training config with `#[gpu_tuned(…)]`, describe a workload in \
         {file}: [workload.NAME], or give the model: --model transformer --dim layers=6 …"
    )]
    NoWorkload { package: String, file: String },
    /// An annotated struct that only the compiler can read.
    #[error(
        "{why}\n  help: give the model: --model transformer --dim layers=6 …, or describe it in gpu-tuned.toml: \
         [workload.NAME], and name it with --workload"
    )]
    UnreadableStruct { why: String },
    #[error("there is no annotated struct `{name}`{hint}\n  help: there is {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") })]
    UnknownStruct { name: String, hint: String, names: Vec<String> },
    #[error("several annotated structs have this name\n  help: name one with --struct: {}", names.join(", "))]
    SeveralStructs { names: Vec<String> },
    #[error("--model: {source}")]
    Model { source: PairsError },
    #[error("{source}\n  help: write the file's name into the call, as \"gpu-tuned.toml\"")]
    ConfigFile { source: ConfigFileError },
    #[error(
        "`{name}` is measured but not described\n  help: describe it in {file}: [workload.{name}], and measure it again"
    )]
    Undescribed { name: String, file: String },
    #[error("there is no workload `{name}`{hint}\n  help: there is {}", names.join(", "))]
    UnknownWorkload { name: String, hint: String, names: Vec<String> },
    #[error("the package has several workloads\n  help: name one with --workload or --struct: {}", names.join(", "))]
    SeveralWorkloads { names: Vec<String> },
    #[error("there is no profile `{name}`{hint}\n  help: `cargo gpu-tuned targets` lists all profiles")]
    UnknownTarget { name: String, hint: String },
    #[error(
        "`{package}` declares no GPU\n  help: name one, such as `h200`, take --here for this machine's, or declare it in \
         Cargo.toml: [features] h200 = []"
    )]
    NoTargets { package: String },
    #[error("`{package}` declares several GPUs\n  help: name one: {}", names.join(", "))]
    SeveralTargets { package: String, names: Vec<String> },
    #[error("{workload}: {source}")]
    Plan { workload: String, source: PlanError },
    #[error("cannot run `{program}`: {source}")]
    Start { program: String, source: io::Error },
    #[error("there is no process {pid}\n  help: `nvidia-smi` and `ps` list processes")]
    NoProcess { pid: u32 },
    #[error("cannot listen to signals: {0}")]
    Signals(#[source] io::Error),
    #[error("the program failed: {how}\n  help: its messages are above{left}")]
    ProgramFailed {
        how: String,
        /// State of its files.
        left: &'static str,
    },
    #[error("stopped, and the program with it{left}")]
    Stopped {
        signal: i32,
        /// State of the program's files.
        left: &'static str,
    },
    #[error("the program of `{package}` ended without measuring anything\n  help: {MEASURE_HELP}", MEASURE_HELP = MEASURE_HELP)]
    NothingMeasured { package: String },
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` has changed meanwhile: nothing was written\n  help: run the command again", path.display())]
    Changed { path: PathBuf },
    #[error(
        "cannot write `{}`: {source}\n  and files written before could not be restored: {}",
        path.display(),
        left.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
    )]
    HalfWritten { path: PathBuf, source: io::Error, left: Vec<PathBuf> },
    #[error("refusing to overwrite the input `{}`\n  help: name another file", path.display())]
    SameFile { path: PathBuf },
    #[error("--json and `-o -` both write to standard output\n  help: leave --json out, or name a file with -o")]
    NotAlone,
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// Ways to record a run.
const RECORD_HELP: &str = "GPU_TUNED_RECORD=FILE records the steps of a program, `cargo gpu-tuned monitor --record FILE` the \
                           GPUs";
/// Ways to have a program measured.
const MEASURE_HELP: &str = "train with `session.trainer(model, optimizer)?` of `gpu-tuned`, or call \
                            `session.measure_if_asked(\"NAME\", &subject)?` in `main`, before the model is made";

impl Error {
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::ProgramFailed { .. } | Self::Stopped { .. } | Self::NothingMeasured { .. } => Code::ProgramFailed,
            _ => Code::Input,
        }
    }

    /// Returns true if nothing is wrong but there is nothing to plan.
    pub(crate) const fn leaves_plans_open(&self) -> bool {
        matches!(
            self,
            Self::NoManifest | Self::SeveralPackages { .. } | Self::NoWorkload { .. } | Self::NoTargets { .. }
        )
    }

    pub(crate) const fn signal(&self) -> Option<i32> {
        match self {
            Self::Stopped { signal, .. } => Some(*signal),
            _ => None,
        }
    }

    /// Adds the state of the program's files to the error of a program that failed or was stopped.
    pub(crate) fn leaving(self, left: &'static str) -> Self {
        match self {
            Self::ProgramFailed { how, .. } => Self::ProgramFailed { how, left },
            Self::Stopped { signal, .. } => Self::Stopped { signal, left },
            other => other,
        }
    }

    pub(crate) fn mistakes(&self) -> Option<String> {
        let Self::Files { mistakes } = self else { return None };
        let all: String = mistakes.iter().map(|(mistake, text)| mistake.render(text)).collect();
        Some(all.trim_end().to_owned())
    }
}
