//! Marked batches.

use core::fmt::{self, Write as _};

use gpu_tuned_core::Bytes;

use super::scale::Scale;
use super::svg::escaped;

/// Radius of the largest outline.
pub(super) const OUTLINE: f64 = 8.0;

/// A marked batch.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Kind of the mark, which selects its shape.
    pub kind: MarkKind,
    /// Samples of the batch.
    pub batch: u64,
    /// Memory needed.
    pub memory: Bytes,
    /// Samples per second.
    pub samples_per_s: f64,
    /// Amounts of memory that a line leads to: devices that the batch is planned for.
    pub until: Vec<Bytes>,
    /// Text where a pointer rests, and in the legend if no other mark has this kind.
    pub title: String,
}

/// The method that chooses a marked batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// The plan.
    Planned,
    /// The largest batch that fits, as batch finders choose it.
    Largest,
    /// A fixed batch of [`MarkKind::FIXED_BATCH`] samples, as found in many configs.
    Fixed,
}

impl MarkKind {
    /// Samples of the fixed batch.
    pub const FIXED_BATCH: u64 = 64;

    /// Draws the outline around a point, with a title unless that is empty.
    pub(super) fn outline(self, [x, y]: [f64; 2], title: &str) -> String {
        let title = if title.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(title)) };
        let path = match self {
            Self::Planned => format!("M{:.1} {y:.1}a7 7 0 1 0 14 0a7 7 0 1 0 -14 0", x - 7.0),
            Self::Largest => format!("M{:.1} {:.1}h13v13h-13z", x - 6.5, y - 6.5),
            Self::Fixed => format!("M{:.1} {y:.1}l8.5 -8.5l8.5 8.5l-8.5 8.5z", x - 8.5),
        };
        format!("<path class=\"mark\" d=\"{path}\">{title}</path>")
    }
}

impl fmt::Display for MarkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Planned => f.write_str("planned"),
            Self::Largest => f.write_str("largest that fits"),
            Self::Fixed => write!(f, "batch {}", Self::FIXED_BATCH),
        }
    }
}

impl Mark {
    /// Draws the line to the devices that the batch is planned for.
    pub(super) fn draw_memory(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        let [x, y] = scale.position(self.memory, self.samples_per_s);
        let ends = || self.until.iter().map(|memory| scale.x(*memory));
        if !self.until.is_empty() {
            let largest = ends().fold(x, f64::max);
            writeln!(text, "<path class=\"spare\" d=\"M{:.1} {y:.1}H{largest:.1}\"/>", (x + OUTLINE).min(largest))?;
        }
        for end in ends() {
            writeln!(text, "<path class=\"mark\" d=\"M{end:.1} {:.1}v8\"/>", y - 4.0)?;
        }
        Ok(())
    }
}
