//! `cargo gpu-tuned monitor`: watches GPUs, the host and a training program.

mod screen;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_core::printable::for_json;
use gpu_tuned_observe::monitor::amounts::{clock, energy, gib, part_of, rate, reason, reasons, short, size, watts};
use gpu_tuned_observe::monitor::{
    GPU_FIGURES, GpuSummary, GpuTimeline, HOST_FIGURES, Monitor, Options, Stats, Summary, Timeline, csv_header,
    csv_line,
};
use gpu_tuned_observe::recording::{GpuSample, HostSample, Record, StepRecord, Tail, now};
use serde::Serialize;

use crate::args::{Common, no_standard_stream, number, parse_time};
use crate::error::Error;
use crate::files::{CSV_BEGIN, check_replaceable, distinct, is_standard, read_recording};
use crate::output::{Answer, BOLD, Code, Form, MARKED, PLAIN, SCHEMA_VERSION, Table, one_line, or_dash, print, styled};
use crate::process::Stop;
use crate::view::readable;

pub(crate) fn run(common: &Common, args: &MonitorArgs) -> Result<Answer, Error> {
    for (read, written) in [&args.replay, &args.record].into_iter().flatten().zip(args.csv_file().into_iter().cycle()) {
        distinct(read, written)?;
    }
    let is_screen = !common.json && !args.plain && !args.prints_csv() && are_terminals();
    let mut notes = Vec::new();
    let timeline = match &args.replay {
        Some(path) => {
            let recorded = read_recording(path)?;
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
        if common.json { line_of(Some("summary"), &summary) } else { summary_text(&summary, &timeline.start.trouble) };
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
    let mut source = Source::open(args)?;
    let mut table = CsvTable::create_if_named(args)?;
    // Opening a pipe waits for its reader: until here, a signal ends the command.
    let stop = Stop::on_signals()?;
    if is_screen {
        let timeline = screen::live(common, args, &mut source, table.as_mut(), &stop)?;
        source.close()?;
        return Ok(Some(timeline));
    }
    let mut output = Output::new(common.json, args, table)?;
    let ended = follow(args, &mut source, &mut output, &stop)?;
    source.close()?;
    Ok(ended)
}

const REST: Duration = Duration::from_millis(50);

/// Prints samples until a signal, the end of the time, or the end of the program; `None` when the reader has closed the output.
fn follow(
    args: &MonitorArgs,
    source: &mut Source,
    output: &mut Output,
    stop: &Stop,
) -> Result<Option<Timeline>, Error> {
    let begin = Instant::now();
    let mut timeline = Timeline::since(source.begun);
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
                return Ok(None);
            }
        }
        if is_over {
            return Ok(Some(timeline));
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
    let mut output = Output::new(common.json, args, CsvTable::create_if_named(args)?)?;
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
/// Steps that a program records into the file of --record are shown, too. Lines and the screen have times from the start of
/// monitor; negative ones are from before, and are not counted. Files and --json have Unix times, in seconds. Nothing is
/// changed on the GPUs, and no package is needed. Utilisation is the driver's: the share of time in which any kernel ran. SM
/// activity, from Hopper on, is the share of the GPU that kernels used.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("monitor/help.txt"))]
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

    fn csv_file(&self) -> Option<&PathBuf> {
        self.csv.as_ref().filter(|_| !self.prints_csv())
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let least = gpu_tuned_observe::monitor::LEAST_INTERVAL;
    parse_time(text).and_then(|time| {
        let is_enough = (least..=Duration::from_hours(1)).contains(&time);
        is_enough.then_some(time).ok_or_else(|| "expected 100ms to 1h".to_owned())
    })
}

struct Source {
    monitor: Monitor,
    /// Start time, in seconds since 1970.
    begun: f64,
    next: u64,
    tail: Option<Tail>,
    pid: Option<u32>,
}

impl Source {
    fn open(args: &MonitorArgs) -> Result<Self, Error> {
        let mut options = Options::default().interval(args.interval);
        options = match args.pid {
            Some(pid) => options.pid(pid),
            None => options.no_program(),
        };
        if !args.gpus.is_empty() {
            options = options.gpus(args.gpus.clone());
        }
        if let Some(path) = &args.record {
            options = options.record(path);
        }
        let begun = now();
        let tail = args.record.as_deref().map(|path| Tail::new(path, begun));
        let monitor = Monitor::start(&options)?;
        let there: Vec<u32> = monitor.latest().start.gpus.iter().map(|gpu| gpu.gpu).collect();
        if let Some(wanted) = args.gpus.iter().find(|wanted| !there.contains(wanted)) {
            let machine = gpu_tuned_nvml::detect();
            let mut numbers: Vec<_> = machine.gpus.iter().map(|gpu| gpu.index.to_string()).collect();
            numbers.dedup();
            let wanted = u64::from(*wanted);
            return Err(if numbers.is_empty() {
                Error::WithoutGpus { wanted, because: machine.trouble, help: "without --gpu, the host is watched" }
            } else {
                Error::NoGpu { wanted, whose: "driver shows", there: numbers }
            });
        }
        let source = Self { monitor, begun, next: 0, tail, pid: args.pid };
        source.find_process()?;
        Ok(source)
    }

    /// Refuses a process that is missing in the first sample.
    fn find_process(&self) -> Result<(), Error> {
        let Some(pid) = self.pid else { return Ok(()) };
        loop {
            match self.monitor.latest().host {
                Some(host) if host.process.is_none() => return Err(Error::NoProcess { pid }),
                Some(_) => return Ok(()),
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn news(&mut self) -> Result<Vec<Record>, Error> {
        // A recording must not lack samples that are shown.
        self.monitor.written()?;
        let (next, mut records) = self.monitor.since(self.next);
        self.next = next;
        records.extend(self.tail.as_mut().map(Tail::news).unwrap_or_default());
        Ok(records)
    }

    /// Returns true if a sample of the host shows the end of the watched program.
    fn has_ended(&self, record: &Record) -> bool {
        matches!(record, Record::Host(host) if self.pid.is_some() && host.process.is_none())
    }

    fn close(self) -> Result<(), Error> {
        self.monitor.stop()?;
        Ok(())
    }
}

/// Records on their way to the standard output and a table.
struct Output {
    kind: Kind,
    table: Option<CsvTable>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lines,
    Json,
    Csv,
}

/// A file of comma-separated values, written a line at a time.
struct CsvTable {
    path: PathBuf,
    file: File,
}

impl Output {
    fn new(is_json: bool, args: &MonitorArgs, table: Option<CsvTable>) -> Result<Self, Error> {
        let kind = match (is_json, args.prints_csv()) {
            (true, _) => Kind::Json,
            (_, true) => Kind::Csv,
            _ => Kind::Lines,
        };
        if kind == Kind::Csv {
            print(&csv_header(), Form::Data).map_err(Error::Print)?;
        }
        Ok(Self { kind, table })
    }

    /// Writes a record that is in `timeline`. Returns false when the reader has closed the output.
    fn write(&mut self, record: &Record, timeline: &Timeline) -> Result<bool, Error> {
        if let Some(table) = &mut self.table {
            table.write(record, timeline)?;
        }
        let (text, form) = match self.kind {
            Kind::Lines => (line(record, timeline), Form::Text),
            Kind::Json => (Some(line_of(None, record)), Form::Data),
            Kind::Csv => (csv_line(record, uuid(record, timeline)), Form::Data),
        };
        text.map_or(Ok(true), |text| print(&text, form)).map_err(Error::Print)
    }
}

impl CsvTable {
    fn create_if_named(args: &MonitorArgs) -> Result<Option<Self>, Error> {
        let Some(path) = args.csv_file() else { return Ok(None) };
        check_replaceable(path, "a table of samples", CSV_BEGIN)?;
        let failure = |source| Error::Write { path: path.clone(), source };
        let mut file = File::create(path).map_err(failure)?;
        file.write_all(csv_header().as_bytes()).map_err(failure)?;
        Ok(Some(Self { path: path.clone(), file }))
    }

    fn write(&mut self, record: &Record, timeline: &Timeline) -> Result<(), Error> {
        let Some(line) = csv_line(record, uuid(record, timeline)) else { return Ok(()) };
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|source| Error::Write { path: self.path.clone(), source })
    }
}

/// A record or the summary, with the version of JSON documents.
#[derive(Serialize)]
struct Line<'a, T> {
    schema_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(flatten)]
    body: &'a T,
}

fn line_of(kind: Option<&str>, body: &impl Serialize) -> String {
    let line = Line { schema_version: SCHEMA_VERSION, kind, body };
    for_json(&serde_json::to_string(&line).expect("BUG: records are always JSON")).into_owned() + "\n"
}

fn uuid<'a>(record: &Record, timeline: &'a Timeline) -> Option<&'a str> {
    let Record::Gpu(sample) = record else { return None };
    track(sample, timeline)?.gpu.uuid.as_deref()
}

fn track<'a>(sample: &GpuSample, timeline: &'a Timeline) -> Option<&'a GpuTimeline> {
    timeline.gpus.iter().find(|track| (track.gpu.gpu, track.gpu.mig_slot) == (sample.gpu, sample.mig_slot))
}

/// Line of a record that is in `timeline`, if it has one.
fn line(record: &Record, timeline: &Timeline) -> Option<String> {
    let line = |at: f64, text: String| Some(format!("{}  {text}\n", time(at - timeline.begun)));
    match record {
        Record::Gpu(sample) => line(sample.at, gpu(sample, timeline)),
        Record::Host(sample) => line(sample.at, host(sample, timeline)),
        Record::Step(record) if timeline.steps.front().is_some_and(|first| first.rank == record.rank) => {
            line(record.at, step(record))
        }
        Record::Run(run) => line(run.at, format!("training `{}` begins: process {}", one_line(&run.workload), run.pid)),
        Record::Value(value) => line(value.at, format!("{} = {}", one_line(&value.name), short(value.value))),
        _ => None,
    }
}

/// A time; negative before the start.
fn time(seconds: f64) -> String {
    format!("{:>8.1} s", if seconds.abs() < 0.05 { 0.0 } else { seconds })
}

fn gpu(sample: &GpuSample, timeline: &Timeline) -> String {
    let track = track(sample, timeline);
    let mut parts = vec![format!("{:<7}", track.map_or_else(|| format!("GPU {}", sample.gpu), GpuTimeline::number))];
    if let Some(trouble) = &sample.trouble {
        parts.push(one_line(trouble));
        return parts.join("  ");
    }
    parts.extend(sample.utilisation_percent.map(|percent| format!("{percent:>3.0} %")));
    parts.extend(sample.sm_activity_percent.map(|percent| format!("SM {percent:>3.0} %")));
    let total = track.and_then(|track| track.gpu.memory_total_bytes);
    parts.extend(
        sample.memory_used_bytes.map(|used| part_of(gib(used as f64), total.map(|total| gib(total as f64)), "GiB", 1)),
    );
    parts.extend(sample.power_mw.map(|power| part_of(watts(power), sample.power_limit_mw.map(watts), "W", 0)));
    parts.extend(sample.sm_clock_mhz.map(|clock| format!("{clock} MHz")));
    parts.extend(sample.temperature_c.map(|celsius| format!("{celsius} °C")));
    let traffic = sample.pcie_to_gpu_bytes_per_s.zip(sample.pcie_from_gpu_bytes_per_s);
    parts.extend(traffic.map(|(to, from)| format!("PCIe {} to, {} from", rate(to as f64), rate(from as f64))));
    if !sample.throttle.is_empty() {
        parts.push(format!("throttled: {}", reasons(sample)));
    }
    parts.join("  ")
}

fn host(sample: &HostSample, timeline: &Timeline) -> String {
    let mut parts = vec!["host   ".to_owned()];
    parts.extend(sample.cpu_percent.map(|percent| format!("{percent:>3.0} %")));
    let total = Some(timeline.start.memory_bytes).filter(|total| *total > 0).map(|total| gib(total as f64));
    parts.extend(sample.memory_used_bytes.map(|used| part_of(gib(used as f64), total, "GiB", 1)));
    if let Some(process) = &sample.process {
        parts.push(format!("process {}", process.pid));
        parts.extend(process.cpu_percent.map(|percent| format!("{percent:.0} %")));
        parts.extend(process.memory_bytes.map(size));
        parts.extend(process.busiest_thread_percent.map(|percent| format!("busiest thread {percent:.0} %")));
    }
    parts.join("  ")
}

fn step(step: &StepRecord) -> String {
    let rate = (step.seconds > 0.0).then(|| format!("  {} samples/s", short(step.samples as f64 / step.seconds)));
    let loss = step.loss.map(|loss| format!("  loss {}", short(loss)));
    format!("step {}{}{}", step.step, rate.unwrap_or_default(), loss.unwrap_or_default())
}

fn summary_text(summary: &Summary, trouble: &[String]) -> String {
    let mut text = format!("\n{}\n", styled(BOLD, format!("Watched for {}", clock(summary.seconds))));
    for gpu in &summary.gpus {
        text.push_str(&of_gpu(gpu, summary.seconds));
    }
    if summary.gpus.is_empty() {
        // The remedy was printed at the start.
        let why = trouble.first().and_then(|trouble| trouble.split(';').next()).unwrap_or("there is none");
        let _ = writeln!(text, "\n{}", styled(MARKED, format!("No GPU was watched: {}", one_line(why))));
    }
    if !summary.gpus.is_empty() && !trouble.is_empty() {
        let lines = trouble.iter().map(|trouble| format!("{}\n", styled(MARKED, one_line(trouble))));
        text.push('\n');
        text.extend(lines);
    }
    let host = HOST_FIGURES.iter().filter_map(|figure| Some((figure.key, summary.host.get(figure.key)?)));
    text.push_str(&table("Host", host));
    if let Some(steps) = &summary.steps {
        let heading = format!("Steps: {}, {} samples", steps.steps, steps.samples);
        text.push_str(&table(&heading, [("samples/s", &steps.samples_per_s)].into_iter()));
        if let Some(loss) = steps.last_loss {
            let _ = writeln!(text, "  loss {} at the end", short(loss));
        }
    }
    text + &table("Values", summary.values.iter().map(|(name, stats)| (name.as_str(), stats)))
}

fn of_gpu(gpu: &GpuSummary, seconds: f64) -> String {
    let slot = gpu.gpu.mig_slot.map(|slot| format!(".{slot}")).unwrap_or_default();
    let name = gpu.gpu.name.as_deref().unwrap_or("a GPU without a name");
    let profile = gpu.gpu.profile.as_deref().map(|profile| format!(" ({profile})")).unwrap_or_default();
    let heading = format!("GPU {}{slot} {name}{profile}", gpu.gpu.gpu);
    let figures = GPU_FIGURES.iter().filter_map(|figure| Some((figure.key, gpu.figures.get(figure.key)?)));
    let mut text = table(&heading, figures);
    if let Some(total) = gpu.gpu.memory_total_bytes {
        let shared = if gpu.gpu.unified_memory { ", shared with the host" } else { "" };
        let _ = writeln!(text, "  of {:.2} GiB of memory{shared}", gib(total as f64));
    }
    if let Some(joules) = gpu.energy_j {
        let _ = writeln!(text, "  {} of energy", energy(joules));
    }
    for (throttle, held) in &gpu.throttled_s {
        let share = if seconds > 0.0 { held / seconds * 100.0 } else { 0.0 };
        let said = format!("clocks throttled for {} ({share:.0}%): {}", clock(*held), reason(*throttle));
        let _ = writeln!(text, "  {}", styled(MARKED, said));
    }
    if gpu.lost_polls > 0 {
        let _ = writeln!(text, "  {}", styled(MARKED, format!("no answer to {} polls", gpu.lost_polls)));
    }
    text
}

fn table<'s>(heading: &str, figures: impl Iterator<Item = (&'s str, &'s Stats)>) -> String {
    let mut table = Table::new(2, ["", ">mean", ">min", ">max", ">std. dev."]);
    let mut is_empty = true;
    for (key, stats) in figures {
        let (name, scale) = readable(key);
        let number = |figure: f64| short(figure / scale);
        let [mean, min, max] = [stats.mean, stats.min, stats.max].map(number);
        let deviation = or_dash(stats.standard_deviation.map(number));
        table.row(PLAIN, [format!("{name:<26}"), mean, min, max, deviation], "");
        is_empty = false;
    }
    if is_empty { String::new() } else { format!("\n{}\n{}", styled(BOLD, one_line(heading)), table.print()) }
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
