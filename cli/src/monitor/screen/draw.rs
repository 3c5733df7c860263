//! Layout of the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::graphs::Graph;
use super::palette::{CHOSEN, STRONG};
use super::{Screen, gpu, help, host, list};
use crate::monitor::amounts::clock;
use crate::monitor::seen::{Seen, Track};

const MOST_TROUBLE: usize = 3;
const LEAST_GRAPHS: u16 = 4;

impl Screen {
    pub(super) fn draw(&self, frame: &mut Frame<'_>, seen: &Seen) {
        let area = frame.area();
        if area.height < 3 || area.width < 20 {
            return;
        }
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(area);
        self.draw_head(frame, head, seen);
        self.draw_body(frame, body, seen);
        self.draw_foot(frame, foot, seen);
        if self.is_help_open {
            help::draw(frame);
        }
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect, seen: &Seen) {
        let end = self.end(seen);
        let run = clock(end - seen.first.unwrap_or(end));
        let what = match (&self.replayed, self.until) {
            (Some(file), _) => format!("{file} at {run} "),
            (None, Some(_)) => format!("paused at {run} "),
            (None, None) => format!("{run}, every {} ", interval(self.interval.as_secs_f64())),
        };
        let driver =
            seen.start.driver_version.as_deref().map(|driver| format!("  driver {driver}")).unwrap_or_default();
        let name = format!(" gpu-tuned monitor{driver}");
        let gap = usize::from(area.width).saturating_sub(name.chars().count() + what.chars().count());
        let line = Line::from([name, " ".repeat(gap), what].map(Span::raw).to_vec());
        frame.render_widget(line.style(CHOSEN), area);
    }

    fn draw_foot(&self, frame: &mut Frame<'_>, area: Rect, seen: &Seen) {
        let keys = if self.replayed.is_some() { "PgUp/PgDn time" } else { "p pause" };
        let others = if seen.gpus.len() > 1 { "  arrows GPU" } else { "" };
        let keys = format!(" q quit  {keys}{others}  +/- zoom  ? help");
        let scale = format!("a column is {} ", interval(self.seconds_per_cell));
        let gap = usize::from(area.width).saturating_sub(keys.len() + scale.len());
        let line = Line::styled(format!("{keys}{}{scale}", " ".repeat(gap)), self.palette.faint());
        frame.render_widget(line, area);
    }

    fn draw_body(&self, frame: &mut Frame<'_>, area: Rect, seen: &Seen) {
        let end = self.end(seen);
        let chosen = self.chosen.min(seen.gpus.len().saturating_sub(1));
        let cells = usize::from(area.width);
        let mut above = Vec::new();
        if seen.gpus.len() > 1 {
            let rows = seen.gpus.len().min((usize::from(area.height) * 2 / 5).max(3));
            above.extend(list::lines(&seen.gpus, chosen, end, rows, cells, self.palette));
            above.push(Line::raw(""));
        }
        let track = seen.gpus.get(chosen);
        if track.is_some() {
            // Errors of other GPUs.
            let trouble = seen.start.trouble.iter().take(MOST_TROUBLE);
            above.extend(trouble.map(|trouble| Line::styled(trouble.clone(), self.palette.bad())));
        }
        let mut below: Vec<_> = host::steps(seen, end).into_iter().collect();
        below.extend(host::program(seen, end));
        below.push(host::line(seen, end));
        let sample = track.and_then(|track| track.at(end));
        match track {
            Some(track) => {
                let place = if seen.gpus.len() > 1 {
                    format!(", {} of {}", chosen + 1, seen.gpus.len())
                } else {
                    String::new()
                };
                above.push(Line::styled(format!("{}{place}", heading(track)), STRONG));
                match sample {
                    Some(sample) if sample.trouble.is_none() => {
                        let traffic = gpu::Traffic::of(track, end);
                        above.extend(gpu::lines(&track.gpu, sample, traffic, cells, self.palette));
                        let left = usize::from(area.height).saturating_sub(above.len() + below.len());
                        let rows = (left / 3).clamp(2, 10);
                        let mut processes = gpu::processes(sample, rows, cells, self.palette);
                        if left > 14 {
                            processes.insert(0, Line::raw(""));
                        }
                        below.splice(0..0, processes);
                    }
                    Some(sample) => {
                        let trouble = sample.trouble.clone().unwrap_or_default();
                        let trouble = wrapped(&trouble, cells).into_iter();
                        above.extend(trouble.map(|line| Line::styled(line, self.palette.bad())));
                    }
                    None => above.push(Line::styled("no sample yet", self.palette.faint())),
                }
            }
            None => above.extend(self.why(seen, cells)),
        }
        self.draw_parts(frame, area, above, below, &self.graphs(seen, track, end), end);
    }

    fn why(&self, seen: &Seen, cells: usize) -> Vec<Line<'static>> {
        let why = seen.start.trouble.first().map_or("waiting for the first sample", String::as_str);
        let heading = Line::styled("No GPU is watched", STRONG);
        let why = wrapped(why, cells).into_iter().map(|line| Line::styled(line, self.palette.bad()));
        [heading].into_iter().chain(why).collect()
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

fn heading(track: &Track) -> String {
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

/// The text wrapped at a number of cells.
fn wrapped(text: &str, cells: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("BUG: there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= cells {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
