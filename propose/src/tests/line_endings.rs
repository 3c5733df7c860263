//! Line endings of edited files.

use crate::line_endings::Text;

#[test]
fn texts_survive_a_round_trip() {
    for text in ["", "a\nb", "a\r\nb\r\n", "\u{feff}a\r\n", "a"] {
        assert_eq!(Text::parse("it", text).expect("its lines end alike").written(), text);
    }
    let mistake = Text::parse("it", "a\r\nb\nc\r\n").expect_err("its lines end in two ways");
    assert_eq!(mistake.place.to_string(), "2:1");
}
