use proptest::prelude::*;

use super::{for_file, for_json, for_terminal};

#[test]
fn styles_stay_and_other_sequences_go() {
    for (text, shown) in [
        ("plain ß\n", "plain ß\n"),
        ("\u{1b}[1mbold\u{1b}[0m \u{1b}[38;5;9mred\u{1b}[m", "\u{1b}[1mbold\u{1b}[0m \u{1b}[38;5;9mred\u{1b}[m"),
        // A clipboard, a cleared screen, a title, a bell, a carriage return, C1, and text from right to left.
        ("\u{1b}]52;c;aGk=\u{7}", "\u{fffd}]52;c;aGk=\u{fffd}"),
        ("\u{1b}[2J\u{1b}[?25l", "\u{fffd}[2J\u{fffd}[?25l"),
        ("a\rb\u{8}\u{9b}31m\u{202e}c", "a\u{fffd}b\u{fffd}\u{fffd}31m\u{fffd}c"),
        ("\u{1b}[1", "\u{fffd}[1"),
        // Hidden, black, reversed, white, and a background.
        ("a\u{1b}[8mb\u{1b}[1;30mc", "a\u{fffd}[8mb\u{fffd}[1;30mc"),
        (
            "\u{1b}[7m\u{1b}[38;5;15m\u{1b}[41m\u{1b}[38;2;0;0;0m",
            "\u{fffd}[7m\u{fffd}[38;5;15m\u{fffd}[41m\u{fffd}[38;2;0;0;0m",
        ),
        ("\u{1b}[1m\u{1b}[91mstyled\nfurther\n", "\u{1b}[1m\u{1b}[91mstyled\nfurther\n\u{1b}[0m"),
        ("\ta\tb\r\nc\r", "\ta\tb\r\nc\u{fffd}"),
    ] {
        assert_eq!(for_terminal(text), shown, "{text:?}");
    }
}

#[test]
fn lines_are_no_commands_of_a_ci_system() {
    let plain = |text: &str| ["\u{1b}[0m", "\u{1b}[1m"].iter().fold(text.to_owned(), |text, it| text.replace(it, ""));
    for command in [
        "::warning file=x::y",
        "\t::add-mask::b",
        "\u{1b}[1m::set-output\u{1b}[0m",
        ":\u{1b}[0m:stop-commands::x",
        "  ##[error]z",
        "a ##[error]z",
        "#\u{1b}[0m#[error]z",
        "###[error]z",
        "##vso[task.setvariable]x",
        "a ##teamcity[x]",
    ] {
        let safe = plain(&for_terminal(&format!("a\n{command}\nb")));
        assert_eq!(safe.lines().count(), 3);
        assert!(!safe.lines().any(super::is_command), "{command:?}: {safe:?}");
    }
    assert_eq!(for_terminal("core::plan\n  a::b\n"), "core::plan\n  a::b\n");
}

#[test]
fn files_have_no_styles() {
    let (text, shown) = ("\u{1b}[1mbold\u{1b}[0m\n::error::x\n", "\u{fffd}[1mbold\u{fffd}[0m\n\u{fffd}::error::x\n");
    assert_eq!(for_file(text), shown);
}

proptest! {
    #[test]
    fn values_of_json_stay_the_same(text in "(##vso\\[|##|\\[|\\\\|\"|\n|\u{7f}|\u{9b}|\u{202e}|\u{2028}|x){0,20}") {
        let document = serde_json::to_string_pretty(&[&text]).unwrap();
        let safe = for_json(&document);
        prop_assert_eq!(serde_json::from_str::<[String; 1]>(&safe).unwrap(), [text]);
        prop_assert_eq!(for_terminal(&safe), &*safe);
    }

    #[test]
    fn safe_text_stays_the_same(text in "(\u{1b}|\\[|[0-9;]|m|:|#|\n|\r|\u{9b}|\u{202e}| |x){0,40}") {
        let safe = for_terminal(&text).into_owned();
        let unstyled: Vec<_> = safe.split("\u{1b}[").collect();
        prop_assert!(unstyled[1..].iter().all(|part| part.trim_start_matches(|it: char| it.is_ascii_digit() || it == ';').starts_with('m')));
        let is_harmful = |it: char| !"\n\r\t\u{1b}".contains(it) && it.is_control();
        prop_assert_eq!(safe.find(is_harmful), None);
        prop_assert_eq!(for_terminal(&safe).into_owned(), safe);
    }
}
