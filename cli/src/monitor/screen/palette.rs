//! Colors of the screen.

use clap::ColorChoice;
use ratatui::style::{Color, Modifier, Style};

pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    has_colors: bool,
}

impl Palette {
    /// Colors as requested; by default, unless `NO_COLOR` is set or the terminal has none.
    pub(super) fn new(color: ColorChoice) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        let has_colors = match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => !is_set("NO_COLOR") && !is_dumb,
        };
        Self { has_colors }
    }

    fn of(self, color: Color) -> Style {
        if self.has_colors { Style::new().fg(color) } else { Style::new() }
    }

    pub(super) fn work(self) -> Style {
        self.of(Color::Green)
    }

    pub(super) fn memory(self) -> Style {
        self.of(Color::Blue)
    }

    pub(super) fn power(self) -> Style {
        self.of(Color::Yellow)
    }

    pub(super) fn clock(self) -> Style {
        self.of(Color::Cyan)
    }

    pub(super) fn heat(self) -> Style {
        self.of(Color::Magenta)
    }

    pub(super) fn bad(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn faint(self) -> Style {
        if self.has_colors { Style::new().fg(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }
}
