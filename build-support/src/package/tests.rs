use std::path::Path;

use super::Directives;

#[test]
fn a_warning_stays_on_its_line() {
    let mut out = Vec::new();
    Directives::new(&mut out).warning("driver said:\ncargo::rustc-env=A=b").expect("a vector takes everything");
    assert_eq!(String::from_utf8_lossy(&out), "cargo::warning=driver said: cargo::rustc-env=A=b\n");
}

#[test]
fn a_path_that_would_break_the_line_is_refused() {
    let mut out = Vec::new();
    assert!(Directives::new(&mut out).rerun_if_changed(Path::new("a\nb")).is_err());
    assert!(out.is_empty());
}
