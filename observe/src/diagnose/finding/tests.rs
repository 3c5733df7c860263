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
