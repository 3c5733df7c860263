//! The screen: present figures, and their history.

mod graphs;
mod panels;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{io, thread};

use clap::ColorChoice;
use gpu_tuned_observe::monitor::amounts::clock;
use gpu_tuned_observe::monitor::{GpuTimeline, Timeline};
use gpu_tuned_observe::recording::Record;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::size;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use ratatui::{DefaultTerminal, Frame};

use super::{CsvTable, MonitorArgs, Source};
use crate::args::Common;
use crate::error::Error;
use crate::output::wrapped_at;
use crate::process::Stop;
use graphs::Graph;

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
    replayed: Option<String>,
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
        check_size(size().map_err(Error::Terminal)?)?;
        let terminal = ratatui::try_init().map_err(Error::Terminal)?;
        let (sender, events) = mpsc::channel();
        let stage = Self { terminal: ManuallyDrop::new(terminal), events };
        // crossterm waits for the end of a sequence that has begun, and for ever on a terminal that has hung up.
        let read = move || while sender.send(event::read()).is_ok() {};
        thread::Builder::new().name("terminal".to_owned()).spawn(read).map_err(Error::Terminal)?;
        Ok(stage)
    }

    fn show(&mut self, screen: &Screen, timeline: &Timeline) -> Result<(), Error> {
        check_size(size().map_err(Error::Terminal)?)?;
        self.terminal.draw(|frame| screen.draw(frame, timeline)).map(drop).map_err(Error::Terminal)
    }
}

/// Characters of the largest screen that is drawn: a terminal may report any size, and each character takes memory.
const MOST_CHARACTERS: u32 = 1 << 20;

fn check_size((columns, rows): (u16, u16)) -> Result<(), Error> {
    let is_drawn = u32::from(columns) * u32::from(rows) <= MOST_CHARACTERS;
    let refusal = || io::Error::other(format!("it reports {columns} columns and {rows} rows"));
    is_drawn.then_some(()).ok_or_else(|| Error::Terminal(refusal()))
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
    mut table: Option<&mut CsvTable>,
    stop: &Stop,
) -> Result<Timeline, Error> {
    let mut screen = Screen::new(has_colors(common.color), None, args.interval);
    let begin = Instant::now();
    let (mut timeline, mut is_old, mut has_ended) = (Timeline::since(source.begun), true, false);
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
    let name = crate::files::input_name(path);
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Quit,
    Draw,
    Nothing,
}

/// Length of a page in time, in columns of a graph.
const PAGE: f64 = 20.0;

impl Screen {
    fn press(&mut self, key: KeyEvent, timeline: &Timeline) -> Act {
        if key.kind == KeyEventKind::Release {
            return Act::Nothing;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Act::Quit,
            KeyCode::Char('q') => return Act::Quit,
            KeyCode::Esc if !self.is_help_open => return Act::Quit,
            KeyCode::Char('?' | 'h') => self.is_help_open = !self.is_help_open,
            KeyCode::Esc => self.is_help_open = false,
            KeyCode::Down | KeyCode::Right | KeyCode::Tab => self.choose(1, timeline),
            KeyCode::Up | KeyCode::Left | KeyCode::BackTab => self.choose(-1, timeline),
            KeyCode::Char('p' | ' ') if self.replayed.is_none() => {
                self.until = if self.until.is_some() { None } else { timeline.last };
            }
            KeyCode::PageUp => self.travel(-PAGE * self.seconds_per_cell, timeline),
            KeyCode::PageDown => self.travel(PAGE * self.seconds_per_cell, timeline),
            KeyCode::Char('+' | '=') => self.zoom(0.5),
            KeyCode::Char('-') => self.zoom(2.0),
            KeyCode::Home => self.until = timeline.first,
            KeyCode::End => self.until = if self.replayed.is_some() { timeline.last } else { None },
            _ => return Act::Nothing,
        }
        Act::Draw
    }

    /// Selects another GPU of the list, cyclically.
    fn choose(&mut self, by: isize, timeline: &Timeline) {
        let count = timeline.gpus.len().max(1);
        self.chosen = (self.chosen.min(count - 1) + count).wrapping_add_signed(by) % count;
    }

    /// Changes the time of a column: from a poll interval to two hours.
    fn zoom(&mut self, by: f64) {
        let least = self.interval.as_secs_f64();
        self.seconds_per_cell = (self.seconds_per_cell * by).clamp(least, 7200.0_f64.max(least));
    }

    fn travel(&mut self, by: f64, timeline: &Timeline) {
        let (Some(first), Some(last)) = (timeline.first, timeline.last) else { return };
        let to = self.end(timeline) + by;
        self.until = if to >= last && self.replayed.is_none() { None } else { Some(to.clamp(first, last.max(first))) };
    }
}

const HELP: &str = include_str!("screen/help.txt");
const MOST_TROUBLE: usize = 3;
const LEAST_GRAPHS: u16 = 4;

impl Screen {
    fn draw(&self, frame: &mut Frame<'_>, timeline: &Timeline) {
        let area = frame.area();
        if area.height < 3 || area.width < 20 {
            return;
        }
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(area);
        self.draw_head(frame, head, timeline);
        self.draw_body(frame, body, timeline);
        self.draw_foot(frame, foot, timeline);
        if self.is_help_open {
            draw_help(frame);
        }
        if !self.has_colors {
            remove_colors(frame.buffer_mut());
        }
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect, timeline: &Timeline) {
        let end = self.end(timeline);
        let run = clock(end - timeline.first.unwrap_or(end));
        let what = match (&self.replayed, self.until) {
            (Some(file), _) => format!("{file} at {run} "),
            (None, Some(_)) => format!("paused at {run} "),
            (None, None) => format!("{run}, every {} ", interval(self.interval.as_secs_f64())),
        };
        let driver =
            timeline.start.driver_version.as_deref().map(|driver| format!("  driver {driver}")).unwrap_or_default();
        let name = format!(" gpu-tuned monitor{driver}");
        let gap = usize::from(area.width).saturating_sub(name.chars().count() + what.chars().count());
        let line = Line::from([name, " ".repeat(gap), what].map(Span::raw).to_vec());
        frame.render_widget(line.style(CHOSEN), area);
    }

    fn draw_foot(&self, frame: &mut Frame<'_>, area: Rect, timeline: &Timeline) {
        let keys = if self.replayed.is_some() { "PgUp/PgDn time" } else { "p pause" };
        let others = if timeline.gpus.len() > 1 { "  arrows GPU" } else { "" };
        let keys = format!(" q quit  {keys}{others}  +/- zoom  ? help");
        let scale = format!("a column is {} ", interval(self.seconds_per_cell));
        let gap = usize::from(area.width).saturating_sub(keys.len() + scale.len());
        let line = Line::styled(format!("{keys}{}{scale}", " ".repeat(gap)), FAINT);
        frame.render_widget(line, area);
    }

    fn draw_body(&self, frame: &mut Frame<'_>, area: Rect, timeline: &Timeline) {
        let end = self.end(timeline);
        let chosen = self.chosen.min(timeline.gpus.len().saturating_sub(1));
        let cells = usize::from(area.width);
        let mut above = Vec::new();
        if timeline.gpus.len() > 1 {
            let rows = timeline.gpus.len().min((usize::from(area.height) * 2 / 5).max(3));
            above.extend(panels::gpu_list(&timeline.gpus, chosen, end, rows, cells));
            above.push(Line::raw(""));
        }
        let track = timeline.gpus.get(chosen);
        if track.is_some() {
            // Errors of other GPUs.
            let trouble = timeline.start.trouble.iter().take(MOST_TROUBLE);
            above.extend(trouble.map(|trouble| Line::styled(trouble.clone(), BAD)));
        }
        let mut below = panels::steps(timeline, end, cells);
        below.extend(panels::program(timeline, end, cells));
        below.extend(panels::host(timeline, end, cells));
        let sample = track.and_then(|track| track.at(end));
        match track {
            Some(track) => {
                let place = if timeline.gpus.len() > 1 {
                    format!(", {} of {}", chosen + 1, timeline.gpus.len())
                } else {
                    String::new()
                };
                above.push(Line::styled(format!("{}{place}", heading(track)), STRONG));
                match sample {
                    Some(sample) if sample.trouble.is_none() => {
                        let traffic = panels::Traffic::of(track, end);
                        above.extend(panels::gpu_lines(&track.gpu, sample, traffic, cells));
                        let left = usize::from(area.height).saturating_sub(above.len() + below.len());
                        let rows = (left / 3).clamp(2, 10);
                        let mut processes = panels::processes(sample, rows, cells);
                        if left > 14 {
                            processes.insert(0, Line::raw(""));
                        }
                        below.splice(0..0, processes);
                    }
                    Some(sample) => {
                        above.extend(bad(sample.trouble.as_deref().unwrap_or_default(), cells));
                    }
                    None => above.push(Line::styled("no sample yet", FAINT)),
                }
            }
            None => above.extend(why(timeline, cells)),
        }
        self.draw_parts(frame, area, above, below, &self.graphs(timeline, track, end), end);
    }

    /// Lines above and below, and graphs between them.
    fn draw_parts(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        above: Vec<Line<'static>>,
        mut below: Vec<Line<'static>>,
        graphs: &[Graph],
        end: f64,
    ) {
        let above_height = (above.len() as u16).min(area.height);
        let room = area.height - above_height;
        // Lines near the host have precedence.
        let cut = below.len().saturating_sub(room.into());
        below.drain(..cut);
        let below_height = below.len() as u16;
        let areas =
            Layout::vertical([Constraint::Length(above_height), Constraint::Min(0), Constraint::Length(below_height)]);
        let [top, middle, bottom] = areas.areas(area);
        frame.render_widget(Paragraph::new(above), top);
        frame.render_widget(Paragraph::new(below), bottom);
        self.draw_graphs(frame, middle, graphs, end);
    }

    fn draw_graphs(&self, frame: &mut Frame<'_>, area: Rect, graphs: &[Graph], end: f64) {
        if area.height < LEAST_GRAPHS || graphs.is_empty() {
            return;
        }
        let columns = (area.width / 40).clamp(1, 4);
        let most = usize::from(columns) * usize::from((area.height / 5).max(1));
        let shown = &graphs[..whole_rows(graphs.len().min(most), columns.into())];
        let rows = shown.len().div_ceil(columns.into());
        let heights = Layout::vertical(vec![Constraint::Fill(1); rows]).split(area);
        let widths = Layout::horizontal(vec![Constraint::Fill(1); columns.into()]).spacing(2);
        for (row, graphs) in shown.chunks(columns.into()).enumerate() {
            let line = Rect { height: heights[row].height.saturating_sub(1), ..heights[row] };
            let line = Rect { y: line.y + 1, ..line };
            for (place, graph) in widths.split(line).iter().zip(graphs) {
                graph.draw(frame, *place, end, self.seconds_per_cell);
            }
        }
    }
}

/// The window with keys and figures.
fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (area.width.min(64), area.height.min(HELP.lines().count() as u16 + 2));
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(Line::styled(" Help ", STRONG));
    frame.render_widget(Paragraph::new(HELP).block(block).wrap(Wrap { trim: false }), place);
}

fn why(timeline: &Timeline, cells: usize) -> Vec<Line<'static>> {
    let why = timeline.start.trouble.first().map_or("waiting for the first sample", String::as_str);
    let heading = Line::styled("No GPU is watched", STRONG);
    [heading].into_iter().chain(bad(why, cells)).collect()
}

fn heading(track: &GpuTimeline) -> String {
    let profile = track.gpu.profile.as_deref().map(|profile| format!(" ({profile})")).unwrap_or_default();
    format!("{}{profile}", track.title())
}

fn interval(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        seconds if seconds < 120.0 => format!("{} s", (seconds * 10.0).round() / 10.0),
        seconds => format!("{:.0} min", seconds / 60.0),
    }
}

/// Number of graphs without a last row that is less than half full.
const fn whole_rows(graphs: usize, columns: usize) -> usize {
    let left = graphs % columns;
    if graphs > columns && left * 2 < columns { graphs - left } else { graphs }
}

/// Lines of a problem, wrapped at a number of cells.
fn bad(text: &str, cells: usize) -> Vec<Line<'static>> {
    wrapped_at(text, 0, cells).lines().map(|line| Line::styled(line.to_owned(), BAD)).collect()
}

const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
const WORK: Style = Style::new().fg(Color::Green);
const MEMORY: Style = Style::new().fg(Color::Blue);
const POWER: Style = Style::new().fg(Color::Yellow);
const CLOCK: Style = Style::new().fg(Color::Cyan);
const HEAT: Style = Style::new().fg(Color::Magenta);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().fg(Color::DarkGray);

/// Returns true if colors are requested; by default, unless `NO_COLOR` is set or the terminal has none.
fn has_colors(color: ColorChoice) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => !is_set("NO_COLOR") && !is_dumb(std::env::var_os("TERM").as_deref()),
    }
}

/// Returns true for a terminal, by the value of `TERM`, that has neither colors nor an alternate screen.
pub(crate) fn is_dumb(terminal: Option<&OsStr>) -> bool {
    terminal.is_some_and(|terminal| terminal == "dumb")
}

/// Removes the colors of a drawn screen; faint text is dimmed.
fn remove_colors(screen: &mut Buffer) {
    for cell in &mut screen.content {
        if cell.fg == Color::DarkGray {
            cell.modifier.insert(Modifier::DIM);
        }
        cell.fg = Color::Reset;
    }
}
