//! `cargo gpu-tuned`: the command line. Each command is a folder of its own; what they share lies beside it.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod check;
mod child;
mod diagnose;
mod error;
mod explain;
mod export;
mod init;
mod json;
mod measure;
mod monitor;
mod optimize;
mod plan;
mod program;
mod project;
mod recording;
mod report;
mod stop;
mod table;
mod targets;
mod time;
mod trace;
mod warm;
mod wrap;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use clap::{CommandFactory, Parser};

use args::{Args, Command};
use error::Error;

/// What a command prints, and whether the answer is yes.
struct Answer {
    text: String,
    /// What belongs to it and is for people only.
    notes: Vec<String>,
    code: Code,
}

/// The exit codes that answers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Code {
    Fine = 0,
    No = 1,
    Input = 2,
    ProgramFailed = 3,
}

/// The command line with all of its commands, as the book's reference shows it.
pub fn command() -> clap::Command {
    // Wherever it is generated.
    let mut command = Args::command().term_width(100);
    command.build();
    command
}

/// Runs the command that the process was given, and says how it ended.
pub fn main() -> ExitCode {
    let args = Args::parse_from(without_own_name(std::env::args_os()));
    ColorChoice::from(args.common.color).write_global();
    let code = run(&args).and_then(|answer| print(&answer)).unwrap_or_else(|error| {
        say(&error.report());
        error.signal().into_iter().for_each(stop::end_by);
        error.code()
    });
    ExitCode::from(code as u8)
}

/// Cargo passes its subcommand's name on: `cargo-gpu-tuned gpu-tuned plan`.
fn without_own_name(args: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    args.enumerate().filter(|(index, arg)| *index != 1 || arg != "gpu-tuned").map(|(_, arg)| arg)
}

fn run(args: &Args) -> Result<Answer, Error> {
    match &args.command {
        Command::Init(init) => init::run(&args.common, init),
        Command::Measure(measure) => measure::run(&args.common, measure),
        Command::Bench(bench) => bench::run(&args.common, bench),
        Command::Warm(warm) => warm::run(&args.common, warm),
        Command::Targets(targets) => targets::run(&args.common, targets),
        Command::Plan(plan) => plan::run(&args.common, plan),
        Command::Explain(explain) => explain::run(&args.common, explain),
        Command::Optimize(optimize) => optimize::run(&args.common, optimize),
        Command::Monitor(monitor) => monitor::run(&args.common, monitor),
        Command::Trace(trace) => trace::run(&args.common, trace),
        Command::Export(export) => export::run(&args.common, export),
        Command::Check(check) => check::run(&args.common, check),
        Command::Diagnose(diagnose) => diagnose::run(&args.common, diagnose),
        Command::Report(report) => report::run(&args.common, report),
    }
}

/// Prints the answer; a reader that has seen enough, such as `head`, is no error.
fn print(answer: &Answer) -> Result<Code, Error> {
    for note in &answer.notes {
        // A text of several lines speaks for itself.
        let text = note.trim_end();
        say(&if text.contains('\n') { text.to_owned() } else { format!("note: {text}") });
    }
    let mut out = AutoStream::auto(io::stdout());
    match out.write_all(answer.text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(answer.code),
    }
}

/// Tells the user something aside. When stderr is closed, the status has to say it all.
fn say(text: &str) {
    let _ = writeln!(AutoStream::auto(io::stderr()), "{text}");
}
