//! SVG plots: samples per second over the memory needed, figures over time, and terminals.
//!
//! Equal figures give equal text, so that plots can be committed beside their data.

mod labels;
mod legend;
mod mark;
mod memory_speed;
mod scale;
mod svg;
mod terminal;
mod time_series;

pub use mark::{Mark, MarkKind};
pub use memory_speed::{Limit, MemorySpeedPlot, ModeLine, Point};
pub use svg::{PlotSize, step};
pub use terminal::{Style, terminal};
pub use time_series::{TimeSeries, TimeSeriesPlot};
