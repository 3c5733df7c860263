//! Why a command has no answer.

use std::io;
use std::path::PathBuf;

use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::source::{FileError, without_controls};
use gpu_tuned_project::config::PairsError;
use gpu_tuned_project::sources::ConfigFileError;
use thiserror::Error;

use crate::Code;
use crate::bench::BenchError;
use crate::optimize::OptimizeError;
use crate::recording::quoted;

/// Why a command has no answer. [`report`](Self::report) prints it as rustc would.
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
    #[error("{} has no records\n  help: {}", quoted(path), crate::recording::HOW_TO)]
    EmptyRecording { path: PathBuf },
    #[error("standard input, `-`, is read once\n  help: name a file in the other place")]
    TwiceStandardInput,
    /// Mistakes in files, each with its place.
    #[error("{}", mistakes.iter().map(|(mistake, _)| mistake.to_string()).collect::<Vec<_>>().join("\n"))]
    Files {
        /// Each with the text of its file.
        mistakes: Vec<(FileError, String)>,
    },
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
        "`{name}` was measured, and nothing describes it\n  help: describe it in {file}: [workload.{name}], and \
         measure it again"
    )]
    Undescribed { name: String, file: String },
    #[error("there is no workload `{name}`{hint}\n  help: there is {}", names.join(", "))]
    UnknownWorkload { name: String, hint: String, names: Vec<String> },
    #[error("the package has several workloads\n  help: name one with --workload or --struct: {}", names.join(", "))]
    SeveralWorkloads { names: Vec<String> },
    #[error("there is no profile `{name}`{hint}\n  help: `cargo gpu-tuned targets` lists those that there are")]
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
    #[error("cannot listen to signals: {0}")]
    Signals(#[source] io::Error),
    #[error("the program failed: {how}\n  help: what it said is above{left}")]
    ProgramFailed {
        how: String,
        /// What it left behind.
        left: &'static str,
    },
    #[error("stopped, and the program with it{left}")]
    Stopped {
        signal: i32,
        /// What the program left behind.
        left: &'static str,
    },
    #[error("the program of `{package}` ended without measuring anything\n  help: {}", crate::measure::how_to())]
    NothingMeasured { package: String },
    #[error("the program of `{package}` ended without making a bundle\n  help: {}", crate::measure::how_to_describe())]
    NothingWarmed { package: String },
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` was changed meanwhile: nothing was written\n  help: run the command again", path.display())]
    Changed { path: PathBuf },
    #[error(
        "cannot write `{}`: {source}\n  and what was written before it could not be taken back: {}",
        path.display(),
        left.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
    )]
    HalfWritten { path: PathBuf, source: io::Error, left: Vec<PathBuf> },
    #[error("`{}` is no checkout of gpu-tuned: it has no `{missing}`", path.display())]
    NoCheckout { path: PathBuf, missing: &'static str },
    #[error(transparent)]
    Optimize(#[from] OptimizeError),
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Monitor(#[from] crate::monitor::Failure),
    #[error(transparent)]
    Diagnose(#[from] crate::diagnose::Failure),
    #[error("`{}` is what is read: it is not written over\n  help: name another file", path.display())]
    SameFile { path: PathBuf },
    #[error("`{}` is there, and is no report: it is not written over\n  help: name another file with -o", path.display())]
    NoReport { path: PathBuf },
    #[error(
        "standard output has either JSON or what `-o -` asks for\n  help: leave --json out, or name a file with -o"
    )]
    NotAlone,
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

impl Error {
    /// The exit code.
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::ProgramFailed { .. }
            | Self::Stopped { .. }
            | Self::NothingMeasured { .. }
            | Self::NothingWarmed { .. } => Code::ProgramFailed,
            Self::Bench(error) => error.code(),
            _ => Code::Input,
        }
    }

    /// Whether nothing is wrong, and nobody has said what could be planned.
    pub(crate) const fn leaves_plans_open(&self) -> bool {
        matches!(
            self,
            Self::NoManifest | Self::SeveralPackages { .. } | Self::NoWorkload { .. } | Self::NoTargets { .. }
        )
    }

    /// The signal that has stopped the command.
    pub(crate) const fn signal(&self) -> Option<i32> {
        match self {
            Self::Stopped { signal, .. } => Some(*signal),
            _ => None,
        }
    }

    /// The same, with what a program that failed or was stopped has left behind.
    pub(crate) fn leaving(self, left: &'static str) -> Self {
        match self {
            Self::ProgramFailed { how, .. } => Self::ProgramFailed { how, left },
            Self::Stopped { signal, .. } => Self::Stopped { signal, left },
            other => other,
        }
    }

    /// The error as it is printed: `error:` with the message; of a file, with the line.
    pub(crate) fn report(&self) -> String {
        match self {
            Self::Files { mistakes } => {
                mistakes.iter().map(|(mistake, text)| mistake.render(text)).collect::<String>().trim_end().to_owned()
            }
            // Names of files and what programs say are somebody else's.
            _ => format!("error: {}", without_controls(&self.to_string())),
        }
    }
}
