//! The commands that the book shows, run. `TRYCMD=overwrite cargo test -p cargo-gpu-tuned --test book` writes into it what
//! they print now.

use std::path::Path;

use trycmd::TestCases;

#[test]
fn commands_print_what_the_book_shows() {
    let cases = TestCases::new();
    // As cargo would run it.
    cases.register_bin("cargo", Path::new(env!("CARGO_BIN_EXE_cargo-gpu-tuned")));
    cases.case("../docs/*.md");
}
