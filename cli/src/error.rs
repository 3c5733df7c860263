//! Errors of the command line.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::source::FileError;
use gpu_tuned_observe::monitor::MonitorError;
use gpu_tuned_optimize::OptimizeError;
use gpu_tuned_project::config::PairsError;
use gpu_tuned_project::file::{Access, remedy};
use gpu_tuned_project::gpu_names::UnknownGpu;
use gpu_tuned_propose::release::Refusal;
use serde::Serialize;
use thiserror::Error;

use crate::files::quoted;
use crate::output::{Code, document};

#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error("{message}")]
    Metadata { message: String },
    #[error("no Cargo.toml in this folder or above it\n  help: name one with --manifest-path; {PLAN_HELP}", PLAN_HELP = PLAN_HELP)]
    NoManifest,
    #[error("there is no package `{name}` in the workspace{hint}\n  help: name one of them: {}", names.join(", "))]
    NoPackage { name: String, hint: String, names: Vec<String> },
    #[error("the workspace has no packages\n  help: name another with --manifest-path; {PLAN_HELP}", PLAN_HELP = PLAN_HELP)]
    NoPackages,
    #[error("the workspace has several packages\n  help: name one with -p: {}", names.join(", "))]
    SeveralPackages { names: Vec<String> },
    #[error("`{package}` has no program to run: it is a library\n  help: name a package with a binary: -p NAME")]
    NoProgram { package: String },
    #[error("`{package}` has no binary\n  help: name the example that trains: --example {}", names.join(", "))]
    ExamplesOnly { package: String, names: Vec<String> },
    #[error("`{package}` has several binaries\n  help: name one with --bin: {}", names.join(", "))]
    SeveralPrograms { package: String, names: Vec<String> },
    #[error("cannot read {}: {source}{}", quoted(path), remedy(source, Access::Read))]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has no records\n  help: {RECORD_HELP}", quoted(path), RECORD_HELP = RECORD_HELP)]
    EmptyRecording { path: PathBuf },
    #[error("standard input, `-`, can be read once\n  help: name a file for the other input")]
    TwiceStandardInput,
    /// Mistakes in files, each with its place and the text of its file.
    #[error("{}", mistakes.iter().map(|(mistake, _)| mistake.to_string()).collect::<Vec<_>>().join("\n"))]
    Files { mistakes: Vec<(FileError, Arc<str>)> },
    #[error(
        "`{package}` has no workload\n  help: `cargo gpu-tuned init -p {package}` sets the package up, and proposes `#[gpu_tuned(…)]` \
         for its training config; or describe a workload in {file}: [workload.NAME]; {PLAN_HELP}",
        PLAN_HELP = PLAN_HELP
    )]
    NoWorkload { package: String, file: String },
    /// Measurements in a format that is no longer read.
    #[error("{warning}")]
    OlderLock { warning: String },
    /// An annotated struct that only the compiler can read.
    #[error(
        "{why}\n  help: give the model: --model 'transformer(layers = 6, …)', or describe it in {file}: \
         [workload.NAME], and name it with --workload"
    )]
    UnreadableStruct { why: String, file: String },
    #[error(
        "there is no annotated struct `{name}`{hint}\n  help: {}",
        if names.is_empty() { "annotate one with `#[gpu_tuned(…)]`".to_owned() } else { format!("name one of them: {}", names.join(", ")) }
    )]
    UnknownStruct { name: String, hint: String, names: Vec<String> },
    #[error("several annotated structs have this name\n  help: name one with --struct: {}", names.join(", "))]
    SeveralStructs { names: Vec<String> },
    #[error(
        "--model: {source}\n  help: describe it as --model 'MODEL(NAME = VALUE, …)', or add --dim NAME=VALUE; \
         well-known models have names, such as gpt2 and resnet18"
    )]
    Model { source: PairsError },
    #[error(
        "`{name}` is measured but not described\n  help: describe it in {file}: [workload.{name}], and measure it again"
    )]
    Undescribed { name: String, file: String },
    #[error("there is no workload `{name}`{hint}\n  help: name one of them: {}", names.join(", "))]
    UnknownWorkload { name: String, hint: String, names: Vec<String> },
    #[error("the package has several workloads\n  help: name one with --workload or --struct: {}", names.join(", "))]
    SeveralWorkloads { names: Vec<String> },
    #[error("{0}\n  help: `cargo gpu-tuned targets` lists all profiles")]
    UnknownTarget(#[from] UnknownGpu),
    #[error(
        "`{package}` declares no GPU\n  help: name one, such as `h200`, take --here for this machine's, or declare it: \
         `cargo gpu-tuned init -p {package} h200`"
    )]
    NoTargets { package: String },
    #[error("no GPU is named\n  help: name one, such as `h200`, or take --here for this machine's")]
    NoneNamed,
    #[error("one GPU can be explained at a time, and {} are named\n  help: name one of them", names.join(", "))]
    SeveralNamed { names: Vec<String> },
    #[error("`{package}` has no feature `{gpu}`\n  help: `cargo gpu-tuned init {gpu}` adds it")]
    Undeclared { package: String, gpu: String },
    #[error("`{package}` declares several GPUs\n  help: name one: {}", names.join(", "))]
    SeveralTargets { package: String, names: Vec<String> },
    #[error("{workload}: {source}")]
    Plan { workload: String, source: PlanError },
    #[error(
        "cannot run `{program}`: {source}\n  help: {}",
        if program == "cargo" { "install Rust (https://rustup.rs), or add cargo to PATH" } else { "correct the variable CARGO, which names it" }
    )]
    Start { program: String, source: io::Error },
    #[error("there is no process {pid}\n  help: `nvidia-smi` and `ps` list processes")]
    NoProcess { pid: u32 },
    #[error("cannot listen to signals: {0}")]
    Signals(#[source] io::Error),
    #[error("cargo could not build the program\n  help: its messages are above; nothing was changed")]
    NotBuilt,
    #[error("the program failed: {how}\n  help: its messages are above{left}")]
    ProgramFailed {
        how: String,
        /// State of its files.
        left: &'static str,
    },
    #[error(
        "a launcher started {world_size} processes of this command ({variable}), and each would start a training of its own\n  \
         help: start the program itself by that launcher; for separate runs set GPU_TUNED_INDEPENDENT=1"
    )]
    LaunchedCopies { world_size: usize, variable: &'static str },
    #[error(
        "rank {rank} failed: {how}{}\n  help: its messages begin with `[{rank}]`; --restarts NUMBER starts all ranks again",
        match restarts { 0 => String::new(), 1 => ", after a restart".to_owned(), _ => format!(", after {restarts} restarts") }
    )]
    RankFailed { rank: usize, how: String, code: u8, restarts: u32 },
    #[error("the ranks saved a checkpoint and stopped\n  help: the same command goes on from there")]
    RanksSaved,
    #[error("stopped, and the program with it{left}")]
    Stopped {
        signal: i32,
        /// State of the program's files.
        left: &'static str,
    },
    #[error("the program of `{package}` ended without measuring anything\n  help: {MEASURE_HELP}", MEASURE_HELP = MEASURE_HELP)]
    NothingMeasured { package: String },
    #[error("cannot write `{}`: {source}{}", path.display(), remedy(source, Access::Write))]
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
    #[error(
        "--json and the result itself would both go to standard output\n  help: leave --json out, or name a file with -o"
    )]
    NotAlone,
    #[error("a shell is for completions\n  help: leave `{shell}` out, or name a file or folder with -o")]
    NoCompletions { shell: clap_complete::Shell },
    #[error(transparent)]
    Monitor(MonitorError),
    #[error(transparent)]
    Config(OptimizeError),
    #[error(
        "`{}` is not a checkout of gpu-tuned: it has no `{missing}`\n  help: name the folder that `git clone` made",
        path.display()
    )]
    NotACheckout { path: PathBuf, missing: &'static str },
    #[error(transparent)]
    Unready(Refusal),
    #[error(
        "nothing was written: the package would depend on a release of gpu-tuned, and there is none\n  help: name a checkout with \
         --checkout DIR; --force writes anyway"
    )]
    Unreleased,
    #[error(
        "`{}` exists and has no results of a bench\n  help: move it elsewhere: results are kept under this name",
        path.display()
    )]
    NoResults { path: PathBuf },
    #[error("interrupted: {how}\n  help: results are kept in {file}; the same command continues")]
    Interrupted { how: String, file: &'static str },
    #[error("`{}` has changed meanwhile and lacks results of this run\n  help: run the command again", path.display())]
    Lost { path: PathBuf },
    #[error(
        "the program of `{package}` ended without making an archive\n  help: in `main`, before the model is made, call \
         `session.measure_if_asked(\"NAME\", &subject)?` of `gpu-tuned`"
    )]
    NothingWarmed { package: String },
    #[error("{what} is for one target, and there are {count}\n  help: without it, each target gets a copy")]
    OneTarget { what: &'static str, count: usize },
    #[error("--{option} needs a package\n  help: run this in its folder, or name it with --manifest-path")]
    NeedsPackage { option: &'static str },
    #[error("`{}` has the name of another format than the config\n  help: end it in `.{ending}`", path.display())]
    OtherFormat { path: PathBuf, ending: String },
    #[error("`{}` exists and differs\n  help: overwrite it with --force, or choose another file with --output", path.display())]
    Exists { path: PathBuf },
    #[error(
        "{ranks} ranks need {needed} open files, but the hard limit is {limit}\n  help: raise it: `nofile` in limits.conf, \
         LimitNOFILE of a service, --ulimit of a container; or start fewer ranks"
    )]
    OpenFiles { ranks: u32, needed: u64, limit: u64 },
    #[error("cannot run `{program}`: {source}{}", remedy(source, Access::Run))]
    StartCommand { program: String, source: io::Error },
    #[error("--price names `{gpu}` twice\n  help: give one price for each GPU")]
    TwicePriced { gpu: String },
    #[error("--try needs a program\n  help: name it with its arguments: --try -- target/release/train")]
    NothingToTry,
    #[error("cannot make a temporary file: {0}\n  help: set TMPDIR to a folder with free space")]
    Temporary(#[source] io::Error),
    #[error("`{}` exists and is not {kind}; not overwritten\n  help: name another file", path.display())]
    OtherContent { path: PathBuf, kind: &'static str },
    #[error("{because}\n  help: --here plans for a GPU that a program takes")]
    UnusableGpu { because: String },
    #[error(
        "there is no GPU {wanted}: this machine has no usable GPU{}\n  help: {help}",
        because.iter().map(|because| format!("\n  {because}")).collect::<String>()
    )]
    WithoutGpus { wanted: u64, because: Vec<String>, help: &'static str },
    #[error("one GPU can be explained, and this machine has {}\n  help: --gpu NUMBER chooses one", names.join(", "))]
    SeveralHere { names: Vec<String> },
    #[error("there is no GPU {wanted}\n  help: the {whose} {}", if there.is_empty() { "none".to_owned() } else { there.join(", ") })]
    NoGpu { wanted: u64, whose: &'static str, there: Vec<String> },
    #[error("cannot use the terminal: {0}\n  help: --plain prints lines instead")]
    Terminal(#[source] io::Error),
    #[error(
        "cannot listen at port {port} of 127.0.0.1: {source}\n  help: choose another with --port, or leave it out for one that is free"
    )]
    Listen { port: u16, source: io::Error },
    /// Arguments that a page sends, and those that depend on others.
    #[error("{message}")]
    Arguments { message: String },
    #[error("cannot print: {0}; what was written to files stays{help}", help = remedy(.0, Access::Write))]
    Print(#[source] io::Error),
}

impl From<OptimizeError> for Error {
    fn from(error: OptimizeError) -> Self {
        match error {
            OptimizeError::Mistakes(mistakes) => Self::Files { mistakes },
            OptimizeError::Read { path, source } => Self::Read { path, source },
            OptimizeError::Plan { workload, source } => Self::Plan { workload, source },
            other => Self::Config(other),
        }
    }
}

/// Number of mistakes that are printed.
const SHOWN: usize = 20;

/// Way to plan without a package or a workload.
const PLAN_HELP: &str = "`cargo gpu-tuned plan h200 --model 'transformer(layers = 6, …)'` plans without a package";

impl From<MonitorError> for Error {
    fn from(error: MonitorError) -> Self {
        match error {
            MonitorError::Record { path, cause } => Self::Write { path, source: cause },
            other => Self::Monitor(other),
        }
    }
}

/// Ways to record a run.
const RECORD_HELP: &str =
    "GPU_TUNED_RECORD=FILE records a program's steps, `cargo gpu-tuned monitor --record FILE` the GPUs";
/// Ways to have a program measured.
const MEASURE_HELP: &str = "train with `session.trainer(model, optimizer)?` of `gpu-tuned`, or call \
                            `session.measure_if_asked(\"NAME\", &subject)?` in `main`, before the model is made";

impl Error {
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::ProgramFailed { .. }
            | Self::RankFailed { .. }
            | Self::RanksSaved
            | Self::Stopped { .. }
            | Self::NothingMeasured { .. }
            | Self::NothingWarmed { .. }
            | Self::Interrupted { .. } => Code::ProgramFailed,
            Self::UnusableGpu { .. } => Code::No,
            Self::Plan { source, .. } if source.is_of_device() => Code::No,
            _ => Code::Input,
        }
    }

    /// Exit code of this process: that of the rank for `launch`.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::RankFailed { code, .. } => *code,
            Self::RanksSaved => crate::launch::SAVED,
            other => other.code() as u8,
        }
    }

    /// Returns true if nothing is wrong but there is nothing to plan.
    pub(crate) const fn leaves_plans_open(&self) -> bool {
        matches!(
            self,
            Self::NoManifest
                | Self::NoPackages
                | Self::SeveralPackages { .. }
                | Self::NoWorkload { .. }
                | Self::NoTargets { .. }
                | Self::NoneNamed
        )
    }

    pub(crate) const fn signal(&self) -> Option<i32> {
        if let Self::Stopped { signal, .. } = self { Some(*signal) } else { None }
    }

    /// Adds the state of the program's files to the error of a program that failed or was stopped.
    pub(crate) fn leaving(self, left: &'static str) -> Self {
        match self {
            Self::ProgramFailed { how, .. } => Self::ProgramFailed { how, left },
            Self::Stopped { signal, .. } => Self::Stopped { signal, left },
            other => other,
        }
    }

    /// The error as the JSON document of a command.
    pub(crate) fn document(&self, command: &str) -> String {
        #[derive(Serialize)]
        struct Refused<'a> {
            error: &'a str,
            help: Option<&'a str>,
        }
        let text = self.to_string();
        let (error, help) = text.split_once("\n  help: ").map_or((&*text, None), |(error, help)| (error, Some(help)));
        document(command, &Refused { error, help }, &[])
    }

    /// The error as printed: mistakes in files with their lines, as rustc prints them; else `error:` with the message.
    pub(crate) fn report(&self) -> String {
        let Self::Files { mistakes } = self else { return format!("error: {self}") };
        let mut all: String = mistakes.iter().take(SHOWN).map(|(mistake, text)| mistake.render(text)).collect();
        if mistakes.len() > SHOWN {
            all += &format!("error: {} more mistakes are not shown; correct these first", mistakes.len() - SHOWN);
        }
        all.trim_end().to_owned()
    }
}
