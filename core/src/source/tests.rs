use super::{FileError, Position, utf8};

#[test]
fn a_long_line_is_cut_around_the_error() {
    let line = format!("{}?{}", "a\x1b".repeat(50_000), "b".repeat(90_000));
    let message = format!("unknown key `{}`, expected `goal`", "k".repeat(50_000));
    for (column, expected) in [(1, 0), (100_001, 51), (190_001, 100)] {
        let place = Position { line: 1, column };
        let error = FileError { file: "a.toml".to_owned(), place, message: message.clone() };
        let rendered = error.render(&line);
        let lines: Vec<_> = rendered.lines().collect();
        assert!(rendered.chars().count() < 800 && error.to_string().chars().count() < 500, "{rendered}");
        assert!(!rendered.contains('\x1b') && lines[0].ends_with("… expected `goal`"), "{rendered}");
        assert_eq!(lines[4], format!("  | {}^", " ".repeat(expected)), "{rendered}");
        if column == 100_001 {
            assert_eq!(lines[3].chars().nth("1 | ".len() + expected), Some('?'), "{rendered}");
        }
    }
}

#[test]
fn control_characters_are_replaced_and_paths_stay_whole() {
    let path = format!("/{}/a.toml", "deep/".repeat(60));
    let place = Position { line: 1, column: 1 };
    let message = format!("no `{path}`, \u{202e}but\u{2066} \x1b[2J");
    let error = FileError { file: "a\x1b\u{202e}\n.toml".to_owned(), place, message };
    for rendered in [error.render("\u{2067}a"), error.to_string()] {
        assert!(rendered.contains("a\u{fffd}\u{fffd}\u{fffd}.toml:1:1") && rendered.contains(&path), "{rendered}");
        let is_harmful = |it: char| it != '\n' && it.is_control() || ('\u{202a}'..='\u{2069}').contains(&it);
        assert_eq!(rendered.find(is_harmful), None, "{rendered}");
    }
}

#[test]
fn the_first_invalid_byte_is_reported_with_its_line() {
    assert_eq!(utf8("a.toml", "ß = 1\n".into(), "save it anew"), Ok("ß = 1\n".to_owned()));
    let (error, text) =
        utf8("a.toml", b"a = 1\n\xc3\x9f = \"\xff\xff\"\n".into(), "save it anew").expect_err("no text");
    assert_eq!(error.to_string(), "a.toml:2:6: this is no UTF-8; save it anew");
    assert!(error.render(&text).contains("\n2 | ß = \"\u{fffd}\u{fffd}\"\n  |      ^\n"), "{}", error.render(&text));
}

#[test]
fn columns_count_characters_not_bytes() {
    let text = "a = 1\nß = ä x\n";
    let x = text.find('x').expect("x is there");
    assert_eq!(Position::from_offset(x, text).to_string(), "2:7");
    assert_eq!(Position::from_offset(999, text).to_string(), "3:1");
}
