//! Numbers as people write them.

use std::str::FromStr;
use std::time::Duration;

/// Largest whole number that a floating-point number represents exactly.
const LARGEST_EXACT: f64 = (1_u64 << 53) as f64;

/// Parses a whole number: `512`, `1_000` or `1e3`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let plain = text.trim().replace('_', "");
    let in_powers =
        || plain.parse().ok().filter(|number: &f64| number.fract() == 0.0 && (0.0..=LARGEST_EXACT).contains(number));
    let number = plain.parse().ok().or_else(|| in_powers().map(|number| number as u64));
    number.ok_or_else(|| "expected a whole number, such as 512 or 1e3".to_owned())
}

/// Parses a number of a GPU, a process or a batch.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| "expected a whole number, such as 2".to_owned())
}

/// Parses a fraction: `0.1` or `10%`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let percent = text.strip_suffix('%').map(|number| number.trim_end().parse().map(|number: f64| number / 100.0));
    let share = percent.unwrap_or_else(|| text.parse()).ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a fraction or a percentage, such as 0.1 or 10%".to_owned())
}

/// Parses an amount of memory in GiB.
pub(crate) fn gib(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches(['B', 'i', 'G']).trim_end();
    let amount = number.parse().ok().filter(|gib: &f64| gib.is_finite() && *gib >= 0.0);
    amount.ok_or_else(|| "expected an amount in GiB, such as 24".to_owned())
}

/// Parses a time with its unit; seconds without one.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let mistake = || "expected a time above 0, such as 500ms, 2s, 1.5m or 1h".to_owned();
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(mistake()),
    };
    let seconds = number.parse::<f64>().map_err(|_| mistake())? * scale;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(mistake)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{count, gib, parse_time, share};

    #[test]
    fn counts_and_fractions_are_taken_as_people_write_them() {
        for (text, number) in [("512", 512), ("1_000", 1000), ("1e3", 1000), ("1.5e3", 1500), (" 8 ", 8)] {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        assert_eq!(count(&u64::MAX.to_string()), Ok(u64::MAX));
        for text in ["", "1.5", "-1", "1e99", "nan", "inf", "10%", "1k"] {
            assert!(count(text).is_err(), "{text}");
        }
        for (text, fraction) in [("10%", 0.1), ("0.1", 0.1), ("12.5 %", 0.125), ("0", 0.0), ("1e-1", 0.1)] {
            assert_eq!(share(text), Ok(fraction), "{text}");
        }
        for text in ["", "%", "ten", "nan", "10%%", "10", "-0.1"] {
            assert!(share(text).is_err(), "{text}");
        }
        assert_eq!((gib("24"), gib("80 GiB"), gib("80GB")), (Ok(24.0), Ok(80.0), Ok(80.0)));
        assert!(gib("24 MiB").is_err() && gib("-1").is_err());
    }

    #[test]
    fn times_have_units() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("2s", 2000),
            ("2", 2000),
            ("1.5s", 1500),
            ("3m", 180_000),
            ("1h", 3_600_000),
            ("1 min", 60_000),
        ] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "-1s", "0s", "1d", "nan", "1e999", "1.2.3s", "99999999999999999999999h", "٣s"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
