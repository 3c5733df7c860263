//! Pictures of what was measured, as SVG: samples per second by the memory needed, and figures over time.
//!
//! The text is the same for the same figures, so that it can be kept beside what it shows.

mod course;
mod draw;
mod scale;

pub use course::{Course, CourseLine};
pub use scale::step;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::Mode;

/// A picture: lines of batches in the plane of memory and speed.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    /// What it is of.
    pub title: String,
    /// What stands at the upper right, to explain what the legend does not.
    pub note: String,
    /// A line for each mode.
    pub lines: Vec<Line>,
    /// Amounts of memory that are marked from top to bottom.
    pub limits: Vec<Limit>,
    /// Points with a ring around them.
    pub rings: Vec<Ring>,
    /// What rings stand for, in the legend; empty where there is none.
    pub ringed: String,
    /// Memory and samples per second of points that no other is better than, ascending: steps are drawn below them.
    pub frontier: Vec<(Bytes, f64)>,
}

/// The batches of one mode.
#[derive(Clone, Debug)]
pub struct Line {
    /// Which decides on colour and dashes.
    pub mode: Mode,
    /// Its points, in the order in which they are joined.
    pub points: Vec<Point>,
}

/// A batch.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Samples in it.
    pub batch: u64,
    /// What it needs.
    pub memory: Bytes,
    /// A median.
    pub samples_per_s: f64,
    /// The slowest and the fastest repeat.
    pub interval: Option<(f64, f64)>,
}

/// An amount of memory that is marked.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Where.
    pub memory: Bytes,
    /// What stands above it.
    pub label: String,
}

/// A ring around a point, and a line from there to larger amounts of memory.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Where.
    pub memory: Bytes,
    /// Where.
    pub samples_per_s: f64,
    /// The amounts of memory that the line leads to.
    pub until: Vec<Bytes>,
    /// What is said of it.
    pub title: String,
}

#[cfg(test)]
mod tests;
