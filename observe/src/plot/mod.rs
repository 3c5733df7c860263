//! SVG plots: samples per second over the memory needed, and figures over time.
//!
//! Equal figures give equal text, so that plots can be committed beside their data.

mod memory_speed;
mod svg;
mod time_series;

pub use memory_speed::{Limit, MemorySpeedPlot, ModeLine, Point, Ring};
pub use svg::step;
pub use time_series::{TimeSeries, TimeSeriesPlot};
