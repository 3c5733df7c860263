//! Parts that plots share.

use core::fmt::{self, Write as _};

use gpu_tuned_core::grouped;
use gpu_tuned_core::printable::for_file;

/// Colors that differ for all kinds of color vision, on light and on dark ground.
const STYLE: &str = include_str!("plot.css");

/// Width of a plot. Text has the same size in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlotSize {
    /// For a page of its own.
    #[default]
    Wide,
    /// Readable on a telephone, or as one of two columns.
    Narrow,
}

/// The area inside of the axes, in the units of the drawing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl PlotSize {
    pub(super) const fn width(self) -> f64 {
        match self {
            Self::Wide => 800.0,
            Self::Narrow => 440.0,
        }
    }
}

/// Opens an SVG with its style, ground and title.
pub(super) fn open(text: &mut String, [width, height]: [f64; 2], title: &str) -> fmt::Result {
    let title = escaped(title);
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>",
    )
}

/// Escapes text for an element, and replaces control characters.
pub(super) fn escaped(text: &str) -> String {
    for_file(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Upper bound of the width of text of 12 px.
pub(super) fn text_width(text: &str) -> f64 {
    6.9 * text.chars().count() as f64
}

/// Formats the figure at a grid line.
pub(super) fn tick(figure: f64, step: f64) -> String {
    match step {
        _ if figure == 0.0 => "0".to_owned(),
        1.0..1e15 => grouped(figure.round() as u64),
        1e-4..1.0 => format!("{figure:.*}", (-step.log10()).ceil() as usize),
        _ => format!("{figure:.1e}"),
    }
}

/// Returns a round step that makes four to eight grid lines up to `max`.
pub fn step(max: f64) -> f64 {
    let power = 10f64.powi(max.log10().floor() as i32 - 1);
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|factor| factor * power);
    steps.into_iter().find(|step| max / step <= 8.0).unwrap_or(max)
}
