//! Amounts with units, for people.

use gpu_tuned_core::{Bytes, grouped, three_digits};

/// Formats a duration in a readable unit.
pub(super) fn seconds(amount: f64) -> String {
    match amount {
        s if s >= 172_800.0 => format!("{:.0} days", s / 86_400.0),
        s if s >= 7200.0 => format!("{:.1} hours", s / 3600.0),
        s if s >= 120.0 => format!("{:.0} min", s / 60.0),
        s if s >= 1.0 => format!("{} s", three_digits(s)),
        s if s >= 1e-3 => format!("{} ms", three_digits(s * 1e3)),
        s => format!("{} us", three_digits(s * 1e6)),
    }
}

/// Formats samples per second.
pub(super) fn rate(amount: f64) -> String {
    format!("{} samples/s", three_digits(amount))
}

/// Formats an amount of memory.
pub(super) fn bytes(amount: f64) -> String {
    Bytes(amount.max(0.0) as u64).to_string()
}

/// Formats a part of 1 in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Formats a whole number.
pub(super) fn whole(amount: f64) -> String {
    grouped(amount.max(0.0).round() as u64)
}

/// Formats a factor.
pub(super) fn times(factor: f64) -> String {
    format!("{} times", three_digits(factor))
}

#[cfg(test)]
mod tests {
    use super::{rate, seconds};

    #[test]
    fn amounts_keep_three_digits() {
        for (amount, text) in [
            (0.000_045_6, "45.6 us"),
            (0.001_234, "1.23 ms"),
            (0.1, "100 ms"),
            (1.5, "1.50 s"),
            (119.0, "119 s"),
            (600.0, "10 min"),
            (9000.0, "2.5 hours"),
            (1e6, "12 days"),
        ] {
            assert_eq!(seconds(amount), text);
        }
        assert_eq!([rate(12_345.6), rate(9.5)], ["12,346 samples/s", "9.50 samples/s"]);
    }
}
