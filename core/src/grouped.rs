/// A whole number with a comma between thousands: `29,660`.
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

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn thousands_are_told_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (29_660, "29,660"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
