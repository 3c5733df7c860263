use std::ffi::OsStr;

use super::{interval, screen};

#[test]
fn a_dumb_terminal_has_no_screen() {
    let is_dumb = |terminal: Option<&str>| screen::is_dumb(terminal.map(OsStr::new));
    assert!(is_dumb(Some("dumb")));
    assert!(![None, Some(""), Some("xterm-256color"), Some("linux")].into_iter().any(is_dumb));
}

#[test]
fn intervals_have_bounds() {
    assert!(interval("50ms").is_err() && interval("2h").is_err() && interval("100ms").is_ok());
}
