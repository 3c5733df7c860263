//! Why a command has no answer.

use std::io;
use std::path::PathBuf;

use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::source::FileError;
use thiserror::Error;

use crate::Code;
use crate::bench::BenchError;
use crate::optimize::OptimizeError;

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
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Mistakes in files, each with its place.
    #[error("{}", mistakes.iter().map(|(mistake, _)| mistake.to_string()).collect::<Vec<_>>().join("\n"))]
    Files {
        /// Each with the text of its file.
        mistakes: Vec<(FileError, String)>,
    },
    #[error(
        "no workload is known of `{package}`\n  help: run `cargo gpu-tuned measure -p {package}`, or describe one in \
         gpu-tuned.toml: [workload.NAME]"
    )]
    NoWorkload { package: String },
    #[error(
        "`{name}` was measured, and nothing describes it\n  help: describe it in gpu-tuned.toml: [workload.{name}], and \
         measure it again"
    )]
    Undescribed { name: String },
    #[error("there is no workload `{name}`{hint}\n  help: there is {}", names.join(", "))]
    UnknownWorkload { name: String, hint: String, names: Vec<String> },
    #[error("the package has several workloads\n  help: name one with --workload: {}", names.join(", "))]
    SeveralWorkloads { names: Vec<String> },
    #[error("there is no profile `{name}`{hint}")]
    UnknownTarget { name: String, hint: String },
    #[error(
        "`{package}` declares no GPU\n  help: name one (`cargo gpu-tuned plan h200`), take --all, or declare it in \
         Cargo.toml: [features] h200 = []"
    )]
    NoTargets { package: String },
    #[error("{workload}: {source}")]
    Plan { workload: String, source: PlanError },
    #[error("cannot run `{program}`: {source}")]
    Start { program: String, source: io::Error },
    #[error("the program failed: {how}\n  help: what it said is above{left}")]
    ProgramFailed {
        how: String,
        /// What it left behind.
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
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

impl Error {
    /// The exit code.
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::ProgramFailed { .. }
            | Self::NothingMeasured { .. }
            | Self::NothingWarmed { .. }
            | Self::Start { .. } => Code::ProgramFailed,
            Self::Bench(error) => error.code(),
            Self::Diagnose(failure) => failure.code(),
            _ => Code::Input,
        }
    }

    /// The same, with what a program that failed has left behind.
    pub(crate) fn leaving(self, left: &'static str) -> Self {
        match self {
            Self::ProgramFailed { how, .. } => Self::ProgramFailed { how, left },
            other => other,
        }
    }

    /// The error as it is printed: `error:` with the message; of a file, with the line.
    pub(crate) fn report(&self) -> String {
        match self {
            Self::Files { mistakes } => {
                mistakes.iter().map(|(mistake, text)| mistake.in_full(text)).collect::<String>().trim_end().to_owned()
            }
            _ => format!("error: {self}"),
        }
    }
}
