//! `cargo gpu-tuned monitor`: watches GPUs, the host and a training program.

mod output;
mod report;
mod screen;
mod source;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_observe::monitor::Timeline;
use gpu_tuned_observe::recording::Record;

use crate::args::{Common, no_standard_stream, number, parse_time};
use crate::error::Error;
use crate::files::distinct;
use crate::output::{Answer, Code, Form};
use crate::process::Stop;
use crate::recording::read;
use crate::stdio::is_standard;
use output::{Ended, Output, Table};
use source::Source;

pub(crate) fn run(common: &Common, args: &MonitorArgs) -> Result<Answer, Error> {
    for (read, written) in [&args.replay, &args.record].into_iter().flatten().zip(args.csv_file().into_iter().cycle()) {
        distinct(read, written)?;
    }
    let is_screen = !common.json && !args.plain && !args.prints_csv() && are_terminals();
    let mut notes = Vec::new();
    let timeline = match &args.replay {
        Some(path) => {
            let recorded = read(path)?;
            notes = recorded.notes;
            replay(common, args, path, recorded.records, is_screen)?
        }
        None => watch(common, args, is_screen)?,
    };
    let Some(timeline) = timeline else {
        return Ok(Answer { text: String::new(), form: Form::Text, notes, code: Code::Ok });
    };
    let summary = timeline.summary();
    let mut text =
        if common.json { output::summary_line(&summary) } else { report::text(&summary, &timeline.start.trouble) };
    if args.prints_csv() {
        // The table goes to standard output.
        notes.push(std::mem::take(&mut text));
    }
    let form = if common.json { Form::Data } else { Form::Text };
    Ok(Answer { text, form, notes, code: Code::Ok })
}

/// Returns true if standard input and output are a terminal that can show a screen.
fn are_terminals() -> bool {
    let is_dumb = screen::is_dumb(std::env::var_os("TERM").as_deref());
    !is_dumb && io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Watches this machine; `None` when the reader has closed the output.
fn watch(common: &Common, args: &MonitorArgs, is_screen: bool) -> Result<Option<Timeline>, Error> {
    let stop = Stop::on_signals()?;
    let mut source = Source::open(args)?;
    if is_screen {
        let mut table = args.csv_file().map(|path| Table::create(path)).transpose()?;
        let timeline = screen::live(common, args, &mut source, table.as_mut(), &stop)?;
        source.close()?;
        return Ok(Some(timeline));
    }
    let mut output = Output::new(common.json, args)?;
    let ended = follow(args, &mut source, &mut output, &stop)?;
    source.close()?;
    Ok(match ended {
        Ended::Whole(timeline) => Some(*timeline),
        Ended::NobodyReads => None,
    })
}

const REST: Duration = Duration::from_millis(50);

/// Prints samples until a signal, the end of the time, or the end of the program.
fn follow(args: &MonitorArgs, source: &mut Source, output: &mut Output, stop: &Stop) -> Result<Ended, Error> {
    let begin = Instant::now();
    let mut timeline = Timeline::since(source.begun());
    let mut has_ended = false;
    loop {
        let is_over = stop.is_wanted() || has_ended || args.duration.is_some_and(|time| begin.elapsed() >= time);
        for record in source.news()? {
            timeline.observe(&record);
            has_ended |= source.has_ended(&record);
            if let Record::Start(start) = &record {
                start.trouble.iter().for_each(|trouble| crate::output::note(trouble));
            }
            if !output.write(&record, &timeline)? {
                return Ok(Ended::NobodyReads);
            }
        }
        if is_over {
            return Ok(Ended::Whole(Box::new(timeline)));
        }
        thread::sleep(REST);
    }
}

/// Shows a recording; `None` when the reader has closed the output.
fn replay(
    common: &Common,
    args: &MonitorArgs,
    path: &Path,
    records: Vec<Record>,
    is_screen: bool,
) -> Result<Option<Timeline>, Error> {
    let records = chosen(args, records)?;
    let mut timeline = Timeline::before(&records);
    if is_screen {
        for record in &records {
            timeline.observe(record);
        }
        let stop = Stop::on_signals()?;
        return screen::replayed(common, &timeline, path, &stop).map(|()| Some(timeline));
    }
    // For people, the summary is enough.
    let mut output = Output::new(common.json, args)?;
    for record in &records {
        timeline.observe(record);
        if (common.json || args.csv.is_some()) && !output.write(record, &timeline)? {
            return Ok(None);
        }
    }
    Ok(Some(timeline))
}

/// Records without those of other GPUs than the requested ones.
fn chosen(args: &MonitorArgs, mut records: Vec<Record>) -> Result<Vec<Record>, Error> {
    let there = gpus(&records);
    if let Some(wanted) = args.gpus.iter().find(|wanted| !there.contains(wanted)) {
        let there = there.iter().map(u32::to_string).collect();
        return Err(Error::NoGpu { wanted: u64::from(*wanted), whose: "recording has", there });
    }
    let is_wanted = |gpu: u32| args.gpus.is_empty() || args.gpus.contains(&gpu);
    records.retain(|record| !matches!(record, Record::Gpu(sample) if !is_wanted(sample.gpu)));
    for record in &mut records {
        if let Record::Start(start) = record {
            start.gpus.retain(|gpu| is_wanted(gpu.gpu));
        }
    }
    Ok(records)
}

fn gpus(records: &[Record]) -> BTreeSet<u32> {
    let of = |record: &Record| match record {
        Record::Start(start) => start.gpus.iter().map(|gpu| gpu.gpu).collect(),
        Record::Gpu(sample) => vec![sample.gpu],
        _ => Vec::new(),
    };
    records.iter().flat_map(of).collect()
}

/// Watch the GPUs, the host and a training program: live on a terminal, as lines in a pipe, with a summary at the end
///
/// Steps that a program records into the file of --record are shown, too. Times are relative to monitor start; negative times
/// are from before, and are not counted. Nothing is changed on the GPUs, and no package is needed. Utilisation is the driver's:
/// the share of time in which any kernel ran. SM activity, from Hopper on, is the share of the GPU that kernels used.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help.txt"))]
pub(crate) struct MonitorArgs {
    /// Poll interval, such as 500ms or 2s; at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Stop after this time, such as 30s, 5m or 1h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// Watch this GPU only, by the driver's number; may be given several times
    #[arg(long = "gpu", value_name = "N", value_parser = number::<u32>)]
    pub gpus: Vec<u32>,
    /// Also watch this process with its children, and stop when it ends
    #[arg(long, value_name = "PID", value_parser = number::<u32>)]
    pub pid: Option<u32>,
    /// Append samples to this recording; a program may write its steps into the same file
    #[arg(long, value_name = "FILE", value_parser = no_standard_stream())]
    pub record: Option<PathBuf>,
    /// Write comma-separated values to this file, or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", conflicts_with = "json")]
    pub csv: Option<PathBuf>,
    /// Show a recording instead of this machine, `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "pid", "duration", "interval"])]
    pub replay: Option<PathBuf>,
    /// Print lines also on a terminal
    #[arg(long)]
    pub plain: bool,
}

impl MonitorArgs {
    /// Returns true if the table goes to standard output.
    fn prints_csv(&self) -> bool {
        self.csv.as_ref().is_some_and(|path| is_standard(path))
    }

    /// File of the table.
    fn csv_file(&self) -> Option<&PathBuf> {
        self.csv.as_ref().filter(|_| !self.prints_csv())
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let least = gpu_tuned_observe::monitor::LEAST_INTERVAL;
    parse_time(text).and_then(|time| {
        let is_enough = (least..=Duration::from_secs(3600)).contains(&time);
        is_enough.then_some(time).ok_or_else(|| "expected 100ms to 1h".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{interval, screen};

    #[test]
    fn a_dumb_terminal_has_no_screen() {
        let is_dumb = |terminal: Option<&str>| screen::is_dumb(terminal.map(OsStr::new));
        assert!(is_dumb(Some("dumb")));
        assert!(![None, Some(""), Some("xterm-256color"), Some("linux")].into_iter().any(is_dumb));
    }

    #[test]
    fn intervals_have_bounds() {
        assert!(interval("50ms").is_err() && interval("2h").is_err() && interval("100ms").is_ok());
    }
}
