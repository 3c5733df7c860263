/// Formats a whole number with a comma between thousands: `29,660`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
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
mod tests {
    use super::{grouped, three_digits};

    #[test]
    fn three_digits_are_significant() {
        for (amount, text) in [
            (12_345.6, "12,346"),
            (100.4, "100"),
            (99.94, "99.9"),
            (10.04, "10.0"),
            (9.994, "9.99"),
            (0.43, "0.43"),
            (0.0432, "0.043"),
            (0.0043, "4.3e-3"),
            (0.0, "0"),
            (-45.6, "-45.6"),
        ] {
            assert_eq!(three_digits(amount), text);
        }
    }

    #[test]
    fn thousands_are_separated() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (29_660, "29,660"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
