//! Commands of the README and of the book, and their output. `TRYCMD=overwrite cargo test -p cargo-gpu-tuned --test cli book` writes the
//! present output there.

use std::path::Path;

use trycmd::TestCases;

#[test]
fn commands_print_what_readme_and_book_show() {
    let cases = TestCases::new();
    // As cargo would run it.
    cases.register_bin("cargo", Path::new(env!("CARGO_BIN_EXE_cargo-gpu-tuned")));
    cases.case("../README.md");
    cases.case("../docs/*.md");
    cases.case("tests/cmd/*.md");
}
