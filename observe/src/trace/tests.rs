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
