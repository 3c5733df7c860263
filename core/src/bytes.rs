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

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn prints_with_the_unit_that_keeps_the_number_readable() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (24 << 30, "24.0 GiB")]
        {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn saturates_instead_of_wrapping() {
        assert_eq!(Bytes(u64::MAX) + Bytes(1), Bytes(u64::MAX));
        assert_eq!(Bytes(u64::MAX).times(2), Bytes(u64::MAX));
        assert_eq!(Bytes(1) - Bytes(2), Bytes::ZERO);
    }
}
