//! Help window for keys and figures.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::palette::STRONG;

const TEXT: [&str; 16] = [
    "arrows, tab   another GPU",
    "p, space      pause, and go on",
    "PgUp, PgDn    back and forth in time",
    "+, -          less time in the graphs, or more",
    "Home, End     the beginning, now",
    "q, Esc        quit: a summary is printed",
    "",
    "Utilisation   time in which any kernel ran, however small",
    "SM activity   multiprocessors that worked (Hopper and later)",
    "SM occupancy  warps that were resident, of those possible",
    "Tensor cores  time in which they worked",
    "Bandwidth     of the GPU's memory, as much as was used",
    "Throttled by  why clocks are lower than they could be",
    "",
    "Graphs end now; each column is the mean of its time.",
    "? closes this.",
];

pub(super) fn draw(frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (area.width.min(64), area.height.min(TEXT.len() as u16 + 2));
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(Line::styled(" Help ", STRONG));
    let text: Vec<_> = TEXT.map(Line::raw).into();
    frame.render_widget(Paragraph::new(text).block(block).wrap(Wrap { trim: false }), place);
}
