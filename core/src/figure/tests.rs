use super::*;

#[test]
fn prints_with_the_unit_that_keeps_the_number_readable() {
    for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (24 << 30, "24.0 GiB")]
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
