//! Keys of the screen.

use gpu_tuned_observe::monitor::Timeline;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::Screen;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Quit,
    Draw,
    Nothing,
}

/// Length of a page in time, in columns of a graph.
const PAGE: f64 = 20.0;

impl Screen {
    pub(super) fn press(&mut self, key: KeyEvent, timeline: &Timeline) -> Act {
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
