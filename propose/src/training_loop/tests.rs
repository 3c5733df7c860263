use super::*;

#[test]
fn an_error_is_returned_only_where_it_becomes_the_function_s_error() {
    for (text, expected) in [
        ("fn f() {}", PANIC),
        ("fn f() -> anyhow::Result<()> {}", "?"),
        ("use anyhow::{Context, Result};\nfn f() -> Result<()> {}", "?"),
        ("use anyhow::Result as Res;\nfn f() -> Result<()> {}", PANIC),
        ("fn f() -> Result<()> {}", PANIC),
        ("fn f() -> std::io::Result<()> {}", PANIC),
        ("fn f() -> miette::Result<()> {}", PANIC),
        ("use miette::Result;\nfn f() -> Result<()> {}", PANIC),
        ("use color_eyre::eyre::Result;\nfn f() -> Result<()> {}", "?"),
        ("fn f() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {}", "?"),
        ("fn f() -> Result<(), Box<dyn Display>> {}", PANIC),
        ("fn f() -> Result<(), anyhow::Error> {}", "?"),
        ("fn f() -> Result<(), String> {}", ".map_err(|error| error.to_string())?"),
        ("fn f() -> Result<(), MyError> {}", PANIC),
        ("fn f() -> Option<()> {}", PANIC),
    ] {
        let file = syn::parse_file(text).expect("Rust");
        let found = file.items.iter().find_map(|item| match item {
            Item::Fn(function) => Some(error_handling(&function.sig.output, &file)),
            _ => None,
        });
        assert_eq!(found, Some(expected), "{text}");
    }
}
