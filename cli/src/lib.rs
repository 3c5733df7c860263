//! `cargo gpu-tuned`: the command line. Each command is a module with its arguments. Modules that several
//! commands share depend on no command.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod check;
mod diagnose;
mod error;
mod explain;
mod export;
mod files;
mod generate;
mod init;
mod launch;
mod measure;
mod monitor;
mod optimize;
mod output;
mod plan;
mod process;
mod program;
mod project;
mod report;
mod serve;
mod target;
mod targets;
mod trace;
mod view;
mod warm;

use std::ffi::OsString;
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use anstream::ColorChoice;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use gpu_tuned_attribute::sources::STACK;

use args::Common;
use error::Error;
use output::{Answer, Code, Form, Verbosity, detail, print, say};

/// Measures workloads, plans them for GPUs, and explains and checks the plans.
#[derive(Debug, Parser)]
#[command(name = "cargo-gpu-tuned", bin_name = "cargo gpu-tuned", version, max_term_width = 100)]
struct Args {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

macro_rules! commands {
    ($($command:ident($module:ident, $args:ty)),+ $(,)?) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($command($args)),+
        }

        impl Command {
            const fn name(&self) -> &'static str {
                match self {
                    $(Self::$command(_) => stringify!($module)),+
                }
            }
        }

        fn run(args: &Args) -> Result<Answer, Error> {
            match &args.command {
                $(Command::$command(own) => $module::run(&args.common, own)),+
            }
        }
    };
}

commands! {
    Init(init, init::InitArgs),
    Measure(measure, measure::MeasureArgs),
    Bench(bench, bench::BenchArgs),
    Warm(warm, warm::WarmArgs),
    Targets(targets, targets::TargetsArgs),
    Plan(plan, plan::PlanArgs),
    Explain(explain, explain::ExplainArgs),
    Optimize(optimize, Box<optimize::OptimizeArgs>),
    Check(check, check::CheckArgs),
    Launch(launch, launch::LaunchArgs),
    Diagnose(diagnose, diagnose::DiagnoseArgs),
    Report(report, report::ReportArgs),
    Serve(serve, serve::ServeArgs),
    Monitor(monitor, monitor::MonitorArgs),
    Trace(trace, trace::TraceArgs),
    Export(export, export::ExportArgs),
    Generate(generate, generate::GenerateArgs),
}

/// Commands that read files or devices alone.
const WITHOUT_PACKAGE: [&str; 6] = ["launch", "diagnose", "monitor", "trace", "export", "generate"];

/// The command line with all commands, as in the reference of the book.
pub fn command() -> clap::Command {
    let mut command = description();
    command.build();
    command
}

/// The command line, before the names of its commands are complete.
fn description() -> clap::Command {
    // A width that does not depend on the terminal.
    with_codes(Args::command().term_width(100))
}

/// Exit codes with their meanings.
pub fn exit_codes() -> impl Iterator<Item = (&'static str, &'static str)> {
    output::meanings()
}

/// The command with exit codes at the end of each help, and options that take negative numbers, so that their parsers
/// refuse them.
fn with_codes(command: clap::Command) -> clap::Command {
    let with_negative = |arg: clap::Arg| {
        let takes_value = !arg.is_positional() && arg.get_action().takes_values();
        if takes_value { arg.allow_negative_numbers(true) } else { arg }
    };
    // The two options stay global, and are refused by name: see `on_large_stack`.
    let of_package = ["manifest_path", "package"].map(|id| command.get_arguments().find(|arg| arg.get_id() == id));
    let of_package: Vec<_> = of_package.into_iter().flatten().map(|arg| arg.clone().hide(true)).collect();
    let with_own = |command: clap::Command| {
        let is_without = WITHOUT_PACKAGE.contains(&command.get_name());
        let command = command.args(of_package.iter().filter(|_| is_without)).mut_args(with_negative);
        let before = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let codes = output::help(Some(command.get_name()));
        command.after_help(format!("{}\n\n{codes}", before.trim_end()))
    };
    command.after_help(output::help(None)).mut_subcommands(with_own)
}

/// Runs the command of this process, and returns its exit code.
pub fn main() -> ExitCode {
    // Sources are parsed by recursion.
    let thread = thread::Builder::new().name("main".to_owned()).stack_size(STACK).spawn(on_large_stack);
    // Without memory for a large stack, only deep sources fail.
    thread.map_or_else(|_| on_large_stack(), |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
}

fn on_large_stack() -> ExitCode {
    let begin = Instant::now();
    let args: Vec<OsString> = without_own_name(std::env::args_os()).collect();
    match requested_color(&args) {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::Always,
        clap::ColorChoice::Never => ColorChoice::Never,
    }
    .write_global();
    let matches = with_codes(Args::command()).try_get_matches_from(args);
    let args = match matches.and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(refusal) => return ExitCode::from(explained(&refusal) as u8),
    };
    if args.common.names_a_package() && WITHOUT_PACKAGE.contains(&args.command.name()) {
        let message = format!("`{}` reads no package: leave out --package and --manifest-path", args.command.name());
        return ExitCode::from(explained(&Args::command().error(ErrorKind::ArgumentConflict, message)) as u8);
    }
    match (args.common.quiet, args.common.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    }
    .set();
    let printed = run(&args).and_then(|answer| answer.print().map_err(Error::Print));
    detail(|| format!("took {:.3} s", begin.elapsed().as_secs_f64()));
    let code = match printed {
        Ok(code) => code as u8,
        Err(error) => {
            if args.common.json && error.exit_code() == Code::No as u8 {
                // The message on standard error is enough for a reader that has gone.
                let _ = print(&error.document(args.command.name()), Form::Data);
            }
            say(&error.report());
            error.signal().into_iter().for_each(process::end_by);
            error.exit_code()
        }
    };
    ExitCode::from(code)
}

/// Prints a message on wrong arguments, a help or the version, and returns the exit code.
fn explained(refusal: &clap::Error) -> Code {
    let text = refusal.render().ansi().to_string();
    if refusal.use_stderr() {
        say(text.trim_end());
        return Code::Input;
    }
    match print(&text, Form::Text) {
        Ok(_) => Code::Ok,
        Err(error) => {
            say(&Error::Print(error).report());
            Code::Input
        }
    }
}

/// The value of `--color`, which messages on wrong arguments heed, too.
fn requested_color(args: &[OsString]) -> clap::ColorChoice {
    let own = args.iter().map(|arg| arg.to_string_lossy()).take_while(|arg| arg != "--");
    let own: Vec<_> = own.collect();
    let separate = own.windows(2).filter(|pair| pair[0] == "--color").map(|pair| &*pair[1]);
    let joined = own.iter().filter_map(|arg| arg.strip_prefix("--color="));
    separate.chain(joined).find_map(|value| value.parse().ok()).unwrap_or_default()
}

/// The arguments without the subcommand's name that cargo passes: `cargo-gpu-tuned gpu-tuned plan`.
fn without_own_name(args: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    args.enumerate().filter(|(index, arg)| *index != 1 || arg != "gpu-tuned").map(|(_, arg)| arg)
}
