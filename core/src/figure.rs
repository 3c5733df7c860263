//! Amounts of memory, the sources of figures, and numbers for people.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// An amount of memory in bytes.
///
/// Arithmetic saturates: a figure that large is refused by the planner in any case, and must not wrap into one that
/// fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// `mib` binary megabytes (2^20 bytes).
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }

    /// The amount in binary megabytes (2^20 bytes).
    pub fn mib(self) -> f64 {
        self.0 as f64 / f64::from(1 << 20)
    }

    /// The amount in binary gigabytes (2^30 bytes).
    pub fn gib(self) -> f64 {
        self.0 as f64 / f64::from(1 << 30)
    }

    /// `count` times this amount.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// This amount scaled by a non-negative factor, rounded up to a whole byte.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor).ceil() as u64)
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

/// Prints with the unit that keeps the number readable: `12.3 GiB`, `4.5 MiB`, `6.7 KiB`, `8 B`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            0..1024 => format!("{} B", self.0),
            1024..1_048_576 => format!("{:.1} KiB", self.0 as f64 / 1024.0),
            1_048_576..1_073_741_824 => format!("{:.1} MiB", self.mib()),
            _ => format!("{:.1} GiB", self.gib()),
        };
        f.pad(&text)
    }
}

/// Source of a figure, ordered from the most to the least reliable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Measured on this device or this program.
    Measured,
    /// Interpolated between measurements.
    Estimated,
    /// Scaled from measurements on another GPU.
    Transferred,
    /// User-specified.
    Declared,
    /// Computed from data sheets and dimensions.
    #[default]
    Derived,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Measured => "measured",
            Self::Estimated => "estimated",
            Self::Transferred => "transferred",
            Self::Declared => "declared",
            Self::Derived => "derived",
        })
    }
}

/// Formats a whole number with a comma between thousands: `29,660`.
pub fn grouped(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1000), number % 1000),
    }
}

/// Formats an amount with two or three significant digits and a comma between thousands: `12,346`, `45.6`, `0.043`. A
/// nonzero amount never prints as 0.
pub fn three_digits(amount: f64) -> String {
    match amount {
        ..0.0 => format!("-{}", three_digits(-amount)),
        0.0 => "0".to_owned(),
        ..0.009_95 => format!("{amount:.1e}"),
        ..0.0995 => format!("{amount:.3}"),
        ..9.995 => format!("{amount:.2}"),
        ..99.95 => format!("{amount:.1}"),
        _ => grouped(amount.round() as u64),
    }
}

#[cfg(test)]
mod tests;
