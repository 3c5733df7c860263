//! Styles of the screen.

use std::ffi::OsStr;

use clap::ColorChoice;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
pub(super) const WORK: Style = Style::new().fg(Color::Green);
pub(super) const MEMORY: Style = Style::new().fg(Color::Blue);
pub(super) const POWER: Style = Style::new().fg(Color::Yellow);
pub(super) const CLOCK: Style = Style::new().fg(Color::Cyan);
pub(super) const HEAT: Style = Style::new().fg(Color::Magenta);
pub(super) const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
pub(super) const FAINT: Style = Style::new().fg(Color::DarkGray);

/// Returns true if colors are requested; by default, unless `NO_COLOR` is set or the terminal has none.
pub(super) fn has_colors(color: ColorChoice) -> bool {
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
pub(super) fn remove_colors(screen: &mut Buffer) {
    for cell in &mut screen.content {
        if cell.fg == Color::DarkGray {
            cell.modifier.insert(Modifier::DIM);
        }
        cell.fg = Color::Reset;
    }
}
