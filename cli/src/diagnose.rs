//! `cargo gpu-tuned diagnose`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use anstyle::Style;
use gpu_tuned_observe::diagnose::{
    Diagnosis, Finding, Judged, Outcome, Quantity, Severity, Tested, compare, diagnose, test,
};
use gpu_tuned_observe::monitor::{Monitor, Options};
use gpu_tuned_observe::recording::{Record, of_process};
use serde::Serialize;
use tempfile::TempDir;

use crate::args::{Common, no_standard_stream, number, parse_time};
use crate::error::Error;
use crate::files::{Recorded, once, read_any_recording, read_recording};
use crate::output::{Answer, BAD, BOLD, Code, FAINT, GOOD, MARKED, note, styled, wrapped};
use crate::process::{self, Started, Stop, is_running, pass_on};
use crate::view::expectation;

/// Find what slows a training run down, with the change to make and its predicted effect
///
/// Reads recordings of a training program and the monitor, watches a running program, or starts one and watches it. Each
/// finding has its evidence, a change, and a prediction. --try tests predictions: for each finding that settings can change,
/// the program runs again with these, for a limited time.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("diagnose/help.txt"))]
pub(crate) struct DiagnoseArgs {
    /// Recordings of one run, such as those of the program and of the monitor; `-` for standard input
    #[arg(value_name = "RECORDING", required_unless_present_any = ["pid", "command"], conflicts_with_all = ["pid", "command"])]
    pub recordings: Vec<PathBuf>,
    /// Process to watch
    #[arg(long, value_name = "PID", value_parser = number::<u32>, conflicts_with = "command")]
    pub pid: Option<u32>,
    /// Time to watch, such as 30s or 5m, after which a started program is stopped; 30s for a running process
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "recordings")]
    pub duration: Option<Duration>,
    /// Keep the recording in this file
    #[arg(long, value_name = "FILE", conflicts_with = "recordings", value_parser = no_standard_stream())]
    pub record: Option<PathBuf>,
    /// Run the program again with proposed settings, and compare with the predictions
    #[arg(long = "try", requires = "command")]
    pub tries: bool,
    /// The longest time of each such run
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "2m", requires = "tries")]
    pub try_for: Duration,
    /// Recording from before a change, whose predictions are compared with this run
    #[arg(long, value_name = "RECORDING", conflicts_with = "tries")]
    pub before: Option<PathBuf>,
    /// Program to start, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The diagnosis, with tests of predictions.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    diagnosis: Diagnosis,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<Ended>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tried: Vec<Trial>,
    /// Amounts of the earlier recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Judged>,
    /// Predictions of an earlier recording.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compared: Vec<Tested>,
}

pub(crate) fn run(common: &Common, args: &DiagnoseArgs) -> Result<Answer, Error> {
    once(args.before.iter().chain(&args.recordings))?;
    // A missing file is found before a program has run for hours.
    let before = args.before.as_ref().map(|path| Input::recorded(std::slice::from_ref(path))).transpose()?;
    if args.tries && args.command.is_empty() {
        return Err(Error::NothingToTry);
    }
    // While recordings are read, the first Ctrl-C ends the command.
    let is_watching = args.recordings.is_empty() || args.tries;
    let stop = if is_watching { Stop::on_signals()? } else { Stop::default() };
    let seen = Input::new(args, &stop)?;
    let diagnosis = diagnose(&seen.records);
    let before = before.map(|before| diagnose(&before.records));
    let compared = before.as_ref().map_or_else(Vec::new, |before| compare(before, &seen.records));
    let failed = seen.ended.as_ref().is_some_and(Ended::failed);
    let tried =
        if args.tries && !failed { try_changes(&diagnosis, &args.command, args.try_for, &stop)? } else { Vec::new() };
    let code = match diagnosis.severity() {
        _ if failed => Code::ProgramFailed,
        Some(Severity::Critical | Severity::Warning) => Code::No,
        None if diagnosis.judged.steps == 0 && diagnosis.judged.gpu_samples == 0 => Code::Unjudged,
        _ => Code::Ok,
    };
    let before = before.map(|before| before.judged);
    let report = Report { diagnosis, program: seen.ended, tried, before, compared };
    Ok(Answer::new(("diagnose", common.json), &report, || report_text(&report), seen.notes, code))
}

const WATCHED: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

struct Input {
    pub records: Vec<Record>,
    pub notes: Vec<String>,
    pub ended: Option<Ended>,
}

/// File of a recording that is made.
struct RecordingFile {
    pub file: PathBuf,
    folder: Option<TempDir>,
}

impl RecordingFile {
    /// The requested file, which must be new; else a temporary one.
    fn new(file: Option<&PathBuf>) -> Result<Self, Error> {
        if let Some(file) = file {
            let failed = |source| Error::Write { path: file.clone(), source };
            fs::OpenOptions::new().write(true).create_new(true).open(file).map_err(failed)?;
            // The program may change its folder.
            return Ok(Self { file: std::path::absolute(file).map_err(failed)?, folder: None });
        }
        let mut private = tempfile::Builder::new();
        #[cfg(unix)]
        private.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let folder = private.tempdir().map_err(Error::Temporary)?;
        Ok(Self { file: folder.path().join("run.jsonl"), folder: Some(folder) })
    }

    /// Returns the result of using the recording. On failure, the recording is kept and its file is named.
    fn done<T>(self, made: Result<T, Error>) -> Result<T, Error> {
        let bytes = fs::metadata(&self.file).map(|file| file.len());
        match (&made, bytes) {
            (Ok(_), _) | (_, Err(_)) => {}
            // An empty file would block the next attempt.
            (Err(_), Ok(0)) => drop(fs::remove_file(&self.file)),
            (Err(_), Ok(_)) => {
                let kept = self.folder.map(TempDir::keep);
                if kept.is_some() {
                    note(&format!("the recording is kept in `{}`", self.file.display()));
                }
            }
        }
        made
    }
}

impl Input {
    fn new(args: &DiagnoseArgs, stop: &Stop) -> Result<Self, Error> {
        if !args.recordings.is_empty() {
            return Self::recorded(&args.recordings);
        }
        let file = RecordingFile::new(args.record.as_ref())?;
        let input = match args.pid {
            Some(pid) => Self::watched(pid, &file.file, args.duration.unwrap_or(WATCHED), stop),
            None => Self::started(args, &file.file, stop),
        };
        file.done(input)
    }

    fn recorded(files: &[PathBuf]) -> Result<Self, Error> {
        let (mut records, mut notes) = (Vec::new(), Vec::new());
        for path in files {
            let read = read_recording(path)?;
            notes.extend(read.notes);
            records.extend(read.records);
        }
        Ok(Self { records, notes, ended: None })
    }

    /// Watches a running process, and reads its own recording.
    fn watched(pid: u32, file: &Path, duration: Duration, stop: &Stop) -> Result<Self, Error> {
        if !is_running(pid) {
            return Err(Error::NoProcess { pid });
        }
        let own = of_process(pid);
        let monitor = watch(pid, file)?;
        let begin = Instant::now();
        while begin.elapsed() < duration && !stop.is_wanted() && is_running(pid) {
            thread::sleep(POLL.min(duration));
        }
        monitor.stop()?;
        let Recorded { mut records, mut notes } = read_if_there(file)?;
        match own.map_or_else(|| Ok(Recorded::default()), |own| read_any_recording(&own)) {
            Ok(own) => {
                records.extend(own.records);
                notes.extend(own.notes);
            }
            Err(error) if records.is_empty() => return Err(error),
            Err(error) => notes.push(format!("the recording of the program itself is left out: {error}")),
        }
        Ok(Self { records, notes, ended: None })
    }

    fn started(args: &DiagnoseArgs, file: &Path, stop: &Stop) -> Result<Self, Error> {
        let ended = run_program(&args.command, file, None, args.duration, stop)?;
        let Recorded { records, notes } = read_if_there(file)?;
        Ok(Self { records, notes, ended: Some(ended) })
    }
}

/// The records of a program, which may have made no recording.
fn read_if_there(file: &Path) -> Result<Recorded, Error> {
    if is_there(file)? { read_any_recording(file) } else { Ok(Recorded::default()) }
}

/// Returns true for a file, and refuses what would block, such as a pipe that the program made in its place.
fn is_there(file: &Path) -> Result<bool, Error> {
    let is_other = fs::metadata(file).is_ok_and(|found| !found.is_file());
    let refused = || Error::Read { path: file.to_owned(), source: io::Error::other("it is not a regular file") };
    if is_other { Err(refused()) } else { Ok(file.exists()) }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Ended {
    /// `None` after a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub was_stopped: bool,
}

impl Ended {
    fn failed(&self) -> bool {
        !self.was_stopped && self.exit_code != Some(0)
    }

    fn describe(&self) -> String {
        match (self.was_stopped, self.exit_code) {
            (true, _) => "was stopped".to_owned(),
            (_, Some(code)) => format!("ended with exit status {code}"),
            (_, None) => "was ended by a signal".to_owned(),
        }
    }
}

/// Runs a program with a monitor, both recording into `file`, to its end or for `duration`. Its output goes to standard
/// error.
fn run_program(
    command: &[OsString],
    file: &Path,
    settings: Option<&str>,
    duration: Option<Duration>,
    stop: &Stop,
) -> Result<Ended, Error> {
    let failed = |source| Error::StartCommand { program: command[0].display().to_string(), source };
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).env("GPU_TUNED_RECORD", file);
    if let Some(settings) = settings {
        program.env("GPU_TUNED_SET", settings);
    }
    let mut started = Started::new(&mut program, stop).map_err(failed)?;
    // Without a monitor the program is ended.
    let monitor = watch(started.id(), file)?;
    let ended = started.wait(duration, |out| pass_on(out, io::stderr())).map_err(failed);
    let watched = monitor.stop();
    let process::Ended { status, was_stopped } = ended?;
    watched?;
    Ok(Ended { exit_code: status.code(), was_stopped })
}

const INTERVAL: Duration = Duration::from_millis(500);

/// Records a process and the machine until the monitor is stopped.
fn watch(pid: u32, file: &Path) -> Result<Monitor, Error> {
    is_there(file)?;
    // The file has all samples.
    Ok(Monitor::start(&Options::default().pid(pid).interval(INTERVAL).record(file).history(0))?)
}

/// A run with a finding's settings.
#[derive(Debug, Serialize)]
struct Trial {
    /// Value of `GPU_TUNED_SET`.
    pub settings: String,
    #[serde(flatten)]
    pub tested: Tested,
    pub program: Ended,
}

/// Runs the program again for each finding that settings can change, and measures the predicted quantity.
fn try_changes(
    diagnosis: &Diagnosis,
    command: &[OsString],
    longest: Duration,
    stop: &Stop,
) -> Result<Vec<Trial>, Error> {
    let changeable = diagnosis.findings.iter().filter_map(|finding| Some((finding, finding.change.pins()?)));
    changeable
        .filter(|(finding, _)| finding.prediction.is_some() && !stop.is_wanted())
        .filter_map(|(finding, pins)| try_change(finding, pins, command, longest, stop).transpose())
        .collect()
}

fn try_change(
    finding: &Finding,
    settings: String,
    command: &[OsString],
    longest: Duration,
    stop: &Stop,
) -> Result<Option<Trial>, Error> {
    note(&format!("running again with {settings}, for up to {} s", longest.as_secs_f64()));
    let file = RecordingFile::new(None)?;
    let ran = run_program(command, &file.file, Some(&settings), Some(longest), stop);
    let ran = ran.and_then(|program| Ok((program, read_if_there(&file.file)?.records)));
    let (program, records) = file.done(ran)?;
    Ok(test(finding, &records).map(|tested| Trial { settings, tested, program }))
}

/// `hit: 1,250 samples/s, predicted 1,280 samples/s`.
fn describe_test(tested: &Tested) -> String {
    let quantity = tested.prediction.quantity;
    let predicted = quantity.describe(tested.prediction.then);
    match (tested.outcome, tested.got) {
        (Outcome::Hit, Some(got)) => format!("hit: {}, predicted {predicted}", quantity.describe(got)),
        (Outcome::Miss, Some(got)) => format!("miss: {}, predicted {predicted}", quantity.describe(got)),
        (Outcome::WithAnother, Some(got)) => {
            format!("gone with another finding: {}, {predicted} predicted for its change alone", quantity.describe(got))
        }
        (Outcome::StillThere, _) => format!("still there: {predicted} predicted with the change"),
        _ => format!("unknown: too few records, predicted {predicted}"),
    }
}

const INDENT: usize = 10;

fn report_text(report: &Report) -> String {
    let diagnosis = &report.diagnosis;
    let mut text: String = diagnosis.findings.iter().map(|finding| paragraph(finding, report)).collect();
    if diagnosis.findings.is_empty() && diagnosis.judged.steps > 0 {
        text += &line(GOOD, "ok", "nothing slows training down");
    }
    text += &line(FAINT, "judged", &judged(&diagnosis.judged));
    for unjudged in &diagnosis.unjudged {
        text += &line(MARKED, "missing", &format!("{}; {}", unjudged.what, unjudged.how));
    }
    if let Some(program) = report.program.as_ref().filter(|program| program.failed()) {
        text += &line(BAD, "program", &format!("it {}", program.describe()));
    }
    text + &compared(report)
}

fn paragraph(finding: &Finding, report: &Report) -> String {
    let style = match finding.severity {
        Severity::Critical => BAD,
        Severity::Warning => MARKED,
        _ => FAINT,
    };
    let headline = wrapped(&format!("{} [{}]", finding.headline, finding.kind), INDENT);
    let mut text = format!("{}{}\n", label(style, finding.severity.name()), styled(BOLD, headline));
    for evidence in &finding.evidence {
        text += &line(FAINT, "", evidence);
    }
    text += &line(FAINT, "change", &finding.change.what);
    if let Some(command) = &finding.change.command {
        text += &line(FAINT, "", &format!("$ {command}"));
    }
    text += &line(FAINT, "expect", &expectation(finding));
    for trial in report.tried.iter().filter(|trial| trial.tested.kind == finding.kind) {
        let words = format!("{} ({})", describe_test(&trial.tested), trial.settings);
        text += &line(outcome(trial.tested.outcome), "tried", &words);
    }
    text + "\n"
}

fn judged(judged: &Judged) -> String {
    let mut parts = Vec::new();
    if judged.steps > 0 {
        parts.push(format!("{} steps after {} of warm-up", judged.steps, judged.warm_up_steps));
    }
    if judged.seconds > 0.0 {
        parts.push(format!("{:.1} s", judged.seconds));
    }
    parts.extend(judged.samples_per_s.map(|rate| Quantity::SamplesPerS.describe(rate)));
    parts.extend(judged.gpu_busy_share.map(|busy| format!("GPU busy {:.0}%", busy * 100.0)));
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// Predictions of an earlier recording against this one; without them, the two speeds.
fn compared(report: &Report) -> String {
    if let Some(before) = report.before.as_ref().filter(|_| report.compared.is_empty()) {
        let rates = before.samples_per_s.zip(report.diagnosis.judged.samples_per_s);
        let describe = |rate| Quantity::SamplesPerS.describe(rate);
        let rates = rates.map(|(then, now)| format!("; {} then, {} now", describe(then), describe(now)));
        return line(FAINT, "before", &format!("no prediction to compare{}", rates.unwrap_or_default()));
    }
    let line = |tested: &Tested| {
        let words = format!("{}: {}", tested.kind, describe_test(tested));
        line(outcome(tested.outcome), "before", &words)
    };
    report.compared.iter().map(line).collect()
}

const fn outcome(outcome: Outcome) -> Style {
    match outcome {
        Outcome::Hit => GOOD,
        Outcome::Miss => BAD,
        _ => FAINT,
    }
}

fn line(style: Style, word: &str, text: &str) -> String {
    format!("{}{}\n", label(style, word), wrapped(text, INDENT))
}

fn label(style: Style, word: &str) -> String {
    styled(style, format!("{word:<INDENT$}"))
}
