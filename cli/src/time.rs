//! Times as arguments.

use std::time::Duration;

/// Parses a time with its unit; seconds without one.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let mistake = || "expected a time, such as 500ms, 2s, 1.5m or 1h".to_owned();
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

    use super::parse_time;

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
