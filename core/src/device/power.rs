use core::fmt;

use serde::{Deserialize, Serialize};

use super::GpuReading;

/// Power limit of a board, and the part of the board that a process can use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PowerLimit {
    /// Limit of the whole board in watts: the enforced one, else that of the data sheet.
    pub board_w: f64,
    /// Part of the board, as a fraction of its SMs: of a MIG slice, and of a client of the Multi-Process Service (MPS).
    pub share: f64,
}

impl PowerLimit {
    /// Limit of the part in watts.
    pub fn watts(self) -> f64 {
        self.board_w * self.share
    }

    /// The limit in force of a GPU, `part` of which the reading describes, else the limit `published` in watts.
    pub(crate) fn from_reading(reading: &GpuReading, part: f64, published: Option<f64>) -> Option<Self> {
        let limit = reading.power_limit_mw.or(reading.default_power_limit_mw);
        let board_w = limit.map(|milliwatts| f64::from(milliwatts) / 1e3).or(published)?;
        let allowed = f64::from(reading.compute_percent.unwrap_or(100).min(100)) / 100.0;
        Some(Self { board_w, share: part * allowed })
    }
}

impl fmt::Display for PowerLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { board_w, share } = self;
        if *share < 1.0 {
            write!(f, "{:.0} W, {:.0}% of the board's {board_w:.0} W", self.watts(), share * 100.0)
        } else {
            write!(f, "{board_w:.0} W")
        }
    }
}
