//! The screen: present figures, and their history.

mod bars;
mod draw;
mod gpu;
mod graphs;
mod host;
mod keys;
mod styles;
#[cfg(test)]
mod tests;

use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{io, thread};

use gpu_tuned_observe::monitor::Timeline;
use gpu_tuned_observe::recording::Record;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use super::MonitorArgs;
use super::output::Table;
use super::source::Source;
use crate::args::Common;
use crate::error::Error;
use crate::process::Stop;
use keys::Act;
use styles::has_colors;
pub(super) use styles::is_dumb;

const REST: Duration = Duration::from_millis(100);

/// State of the screen.
#[derive(Debug)]
pub(super) struct Screen {
    /// Index of the selected GPU.
    chosen: usize,
    /// End of the shown time, unless that is now.
    until: Option<f64>,
    is_help_open: bool,
    has_colors: bool,
    /// Name of the replayed file.
    replayed: Option<String>,
    /// Poll interval.
    interval: Duration,
    /// Seconds of a column of a graph.
    seconds_per_cell: f64,
}

/// The terminal, which is restored on drop and by ratatui's panic hook, and what happens on it.
struct Stage {
    /// Never dropped: ratatui would print an error, and panic without a standard error.
    terminal: ManuallyDrop<DefaultTerminal>,
    events: Receiver<io::Result<Event>>,
}

impl Stage {
    fn open() -> Result<Self, Error> {
        let terminal = ratatui::try_init().map_err(Error::Terminal)?;
        let (sender, events) = mpsc::channel();
        let stage = Self { terminal: ManuallyDrop::new(terminal), events };
        // crossterm waits for the end of a sequence that has begun, and for ever on a terminal that has hung up.
        let read = move || while sender.send(event::read()).is_ok() {};
        thread::Builder::new().name("terminal".to_owned()).spawn(read).map_err(Error::Terminal)?;
        Ok(stage)
    }

    fn show(&mut self, screen: &Screen, timeline: &Timeline) -> Result<(), Error> {
        self.terminal.draw(|frame| screen.draw(frame, timeline)).map(drop).map_err(Error::Terminal)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A terminal that has hung up stays as it is.
        drop(self.terminal.show_cursor());
        drop(ratatui::try_restore());
    }
}

/// Shows this machine until a signal, the end of the time, or the end of the program.
pub(super) fn live(
    common: &Common,
    args: &MonitorArgs,
    source: &mut Source,
    mut table: Option<&mut Table>,
    stop: &Stop,
) -> Result<Timeline, Error> {
    let mut screen = Screen::new(has_colors(common.color), None, args.interval);
    let begin = Instant::now();
    let (mut timeline, mut is_old, mut has_ended) = (Timeline::since(source.begun()), true, false);
    let mut stage = Stage::open()?;
    loop {
        for record in source.news()? {
            timeline.observe(&record);
            has_ended |= source.has_ended(&record);
            if let Some(table) = &mut table {
                table.write(&record, &timeline)?;
            }
            is_old |= matches!(record, Record::Host(_) | Record::Start(_));
        }
        if stop.is_wanted() || has_ended || args.duration.is_some_and(|time| begin.elapsed() >= time) {
            return Ok(timeline);
        }
        if std::mem::take(&mut is_old) {
            stage.show(&screen, &timeline)?;
        }
        match screen.wait(&stage.events, &timeline)? {
            Act::Quit => return Ok(timeline),
            Act::Draw => is_old = true,
            Act::Nothing => {}
        }
    }
}

/// Shows a recording until the user quits.
pub(super) fn replayed(common: &Common, timeline: &Timeline, path: &Path, stop: &Stop) -> Result<(), Error> {
    let name = crate::stdio::input_name(path);
    let mut screen = Screen::new(has_colors(common.color), Some(name), interval_of(timeline));
    screen.until = timeline.last;
    screen.fit(timeline);
    let mut stage = Stage::open()?;
    let mut is_old = true;
    while !stop.is_wanted() {
        if std::mem::take(&mut is_old) {
            stage.show(&screen, timeline)?;
        }
        match screen.wait(&stage.events, timeline)? {
            Act::Quit => break,
            Act::Draw => is_old = true,
            Act::Nothing => {}
        }
    }
    Ok(())
}

/// Columns of a graph on a terminal of 80.
const USUAL_CELLS: f64 = 38.0;

/// Median poll interval of a recording; a second without samples.
fn interval_of(timeline: &Timeline) -> Duration {
    let times = timeline.host.iter().zip(timeline.host.iter().skip(1)).map(|(one, next)| next.at - one.at);
    let mut times: Vec<f64> = times.filter(|seconds| *seconds > 0.01).collect();
    times.sort_by(f64::total_cmp);
    let usual = times.get(times.len() / 2).copied().unwrap_or(1.0);
    Duration::try_from_secs_f64(usual).unwrap_or(Duration::from_secs(1))
}

impl Screen {
    fn new(has_colors: bool, replayed: Option<String>, interval: Duration) -> Self {
        let seconds_per_cell = interval.as_secs_f64();
        Self { chosen: 0, until: None, is_help_open: false, has_colors, replayed, interval, seconds_per_cell }
    }

    /// Waits briefly for a key.
    fn wait(&mut self, events: &Receiver<io::Result<Event>>, timeline: &Timeline) -> Result<Act, Error> {
        match events.recv_timeout(REST) {
            Ok(Ok(Event::Key(key))) => Ok(self.press(key, timeline)),
            Ok(Ok(Event::Resize(..))) => Ok(Act::Draw),
            // The caller checks for signals.
            Ok(Err(error)) if error.kind() != io::ErrorKind::Interrupted => Err(Error::Terminal(error)),
            Ok(_) | Err(RecvTimeoutError::Timeout) => Ok(Act::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Act::Quit),
        }
    }

    /// Fits a whole recording into graphs of usual width.
    fn fit(&mut self, timeline: &Timeline) {
        let seconds = timeline.first.zip(timeline.last).map_or(0.0, |(first, last)| last - first);
        self.seconds_per_cell = self.seconds_per_cell.max(seconds / USUAL_CELLS);
    }

    /// End of the shown time.
    fn end(&self, timeline: &Timeline) -> f64 {
        self.until.or(timeline.last).unwrap_or_default()
    }
}
