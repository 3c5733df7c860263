//! Checks of the figures of profiles: ranges, and identities between figures.

mod expected;
mod identity;
mod memory;
mod peaks;
mod ranges;

use core::fmt;

use super::Profile;
use super::estimate::Estimate;
use crate::Bytes;
use crate::device::ProductLine;
use expected::number;

pub(super) use memory::{WIDEST_WITHOUT_HBM, bandwidth_range};
pub(super) use ranges::{BUS_BITS, L2_MIB, TDP_W};

/// A figure of a profile that is out of range or contradicts another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Key of the figure, with dots between tables.
    pub key: &'static str,
    /// The value, the allowed values and their origin.
    message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.key, self.message)
    }
}

/// Tolerance of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Profiles of this crate: exact data rates, and peaks within rounding of units x clock.
    Shipped,
    /// Profiles of users, who also describe boards with other clocks and memory.
    User,
}

/// Finds all figures of a profile that are out of range or contradict each other.
pub fn faults(profile: &Profile, strictness: Strictness) -> Vec<Fault> {
    let name = profile.names.first().map(String::as_str);
    let line = ProductLine::new(name, profile.compute_capability);
    let estimate = Estimate::new(profile.compute_capability, line, Bytes::from_mib(profile.memory.nominal_mib));
    let mut faults = Faults { profile, estimate, strictness, found: Vec::new() };
    faults.identity();
    faults.ranges();
    faults.memory();
    faults.units();
    faults.peaks();
    faults.found
}

/// The faults found in a profile so far.
struct Faults<'a> {
    profile: &'a Profile,
    /// Figures of similar GPUs.
    estimate: Estimate,
    strictness: Strictness,
    found: Vec<Fault>,
}

impl Faults<'_> {
    fn add(&mut self, key: &'static str, message: impl Into<String>) {
        self.found.push(Fault { key, message: message.into() });
    }

    /// Adds a fault if the value is outside of a range. `unit` is that of the range.
    fn check(&mut self, key: &'static str, value: f64, [low, high]: [f64; 2], unit: &str, origin: &str) {
        if !(low..=high).contains(&value) {
            let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
            let (low, high) = (number(low), number(high));
            self.add(key, format!(" = {value} is out of range, expected {low} to {high}{unit} ({origin})"));
        }
    }

    /// Returns a figure without a fault, so that a fault does not cause others.
    fn sound<T>(&self, key: &str, figure: Option<T>) -> Option<T> {
        figure.filter(|_| self.found.iter().all(|fault| fault.key != key))
    }

    /// Origin of ranges around the figures of similar GPUs.
    fn similar(&self, factor: f64) -> String {
        format!("a factor of {factor} around GPUs of compute capability {}", self.profile.compute_capability)
    }
}

#[cfg(test)]
mod tests;
