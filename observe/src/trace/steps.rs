//! A range of steps.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A range of steps with both ends: `11..20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The first step, from 1.
    pub first: u64,
    /// The last step.
    pub last: u64,
}

/// Text that is no range of steps.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` names no steps: expected FIRST..LAST, such as 11..20, or one step; the first step is 1")]
pub struct StepsError {
    /// The text.
    pub text: String,
}

/// Ten steps after kernels were compiled and autotuned.
impl Default for Steps {
    fn default() -> Self {
        Self { first: 11, last: 20 }
    }
}

impl Steps {
    /// All steps.
    pub const ALL: Self = Self { first: 1, last: u64::MAX };

    /// Returns whether the range has a step.
    pub const fn has(self, step: u64) -> bool {
        self.first <= step && step <= self.last
    }
}

impl FromStr for Steps {
    type Err = StepsError;

    fn from_str(text: &str) -> Result<Self, StepsError> {
        let number = |text: &str| text.trim().parse().ok().filter(|step| *step > 0);
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let steps = number(first).zip(number(last.strip_prefix('=').unwrap_or(last)));
        let steps = steps.filter(|(first, last)| first <= last);
        let (first, last) = steps.ok_or_else(|| StepsError { text: text.to_owned() })?;
        Ok(Self { first, last })
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::Steps;

    #[test]
    fn steps_are_read() {
        for (text, first, last) in [("11..20", 11, 20), ("3", 3, 3), (" 1 .. 2 ", 1, 2), ("4..=6", 4, 6)] {
            assert_eq!(text.parse(), Ok(Steps { first, last }), "{text}");
        }
        for text in ["", "0", "0..3", "5..4", "..3", "3..", "a..b", "1...3"] {
            assert!(text.parse::<Steps>().is_err(), "{text}");
        }
    }
}
