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

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use crate::output::Code;
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

/// The terminal, which is restored on drop and by ratatui's panic hook.
struct Stage {
    terminal: DefaultTerminal,
    is_over: Arc<AtomicBool>,
}

/// Time for the screen to end after a signal.
const PATIENCE: Duration = Duration::from_secs(2);

impl Stage {
    fn open(stop: &Stop) -> Result<Self, Error> {
        let terminal = ratatui::try_init().map_err(Error::Terminal)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (stop, watched) = (stop.clone(), Arc::clone(&is_over));
        // crossterm never returns from reading a terminal that has hung up.
        let guard = thread::Builder::new().name("terminal-guard".to_owned()).spawn(move || {
            while !stop.is_wanted() {
                thread::sleep(REST);
            }
            thread::sleep(PATIENCE);
            if !watched.load(Ordering::Relaxed) {
                ratatui::restore();
                std::process::exit(i32::from(Code::Ok as u8));
            }
        });
        guard.map_err(Error::Terminal)?;
        Ok(Self { terminal, is_over })
    }

    fn show(&mut self, screen: &Screen, timeline: &Timeline) -> Result<(), Error> {
        self.terminal.draw(|frame| screen.draw(frame, timeline)).map(drop).map_err(Error::Terminal)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        ratatui::restore();
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
    let mut stage = Stage::open(stop)?;
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
        match screen.wait(&timeline)? {
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
    let mut stage = Stage::open(stop)?;
    let mut is_old = true;
    while !stop.is_wanted() {
        if std::mem::take(&mut is_old) {
            stage.show(&screen, timeline)?;
        }
        match screen.wait(timeline)? {
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
    fn wait(&mut self, timeline: &Timeline) -> Result<Act, Error> {
        let happened = event::poll(REST).and_then(|is_there| if is_there { event::read().map(Some) } else { Ok(None) });
        match happened {
            Ok(Some(Event::Key(key))) => Ok(self.press(key, timeline)),
            Ok(Some(Event::Resize(..))) => Ok(Act::Draw),
            Ok(_) => Ok(Act::Nothing),
            // The caller checks for signals.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Act::Nothing),
            Err(error) => Err(Error::Terminal(error)),
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
