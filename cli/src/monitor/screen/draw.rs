//! Layout of the screen.

use gpu_tuned_observe::monitor::amounts::clock;
use gpu_tuned_observe::monitor::{GpuTimeline, Timeline};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::graphs::Graph;
use super::styles::{BAD, CHOSEN, FAINT, STRONG, remove_colors};
use super::{Screen, gpu, host};
use crate::output::wrapped_at;

const HELP: &str = include_str!("help.txt");
const MOST_TROUBLE: usize = 3;
const LEAST_GRAPHS: u16 = 4;

impl Screen {
    pub(super) fn draw(&self, frame: &mut Frame<'_>, timeline: &Timeline) {
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
            above.extend(gpu::list(&timeline.gpus, chosen, end, rows, cells));
            above.push(Line::raw(""));
        }
        let track = timeline.gpus.get(chosen);
        if track.is_some() {
            // Errors of other GPUs.
            let trouble = timeline.start.trouble.iter().take(MOST_TROUBLE);
            above.extend(trouble.map(|trouble| Line::styled(trouble.clone(), BAD)));
        }
        let mut below = host::steps(timeline, end, cells);
        below.extend(host::program(timeline, end, cells));
        below.extend(host::host(timeline, end, cells));
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
                        let traffic = gpu::Traffic::of(track, end);
                        above.extend(gpu::lines(&track.gpu, sample, traffic, cells));
                        let left = usize::from(area.height).saturating_sub(above.len() + below.len());
                        let rows = (left / 3).clamp(2, 10);
                        let mut processes = gpu::processes(sample, rows, cells);
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

/// The reason why no GPU is watched.
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
