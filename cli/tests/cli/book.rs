//! Commands of the book and their output. `TRYCMD=overwrite cargo test -p cargo-gpu-tuned --test cli book` writes the
//! present output into the book.

use std::path::Path;

use trycmd::TestCases;

#[test]
fn commands_print_what_the_book_shows() {
    let cases = TestCases::new();
    // As cargo would run it.
    cases.register_bin("cargo", Path::new(env!("CARGO_BIN_EXE_cargo-gpu-tuned")));
    cases.case("../docs/*.md");
}
