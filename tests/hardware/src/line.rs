//! Lines of output.

use std::io::{Write, stdout};

use serde::Serialize;

use crate::{catching::Failure, mode::Mode};

#[derive(Serialize)]
struct Head<'a> {
    #[serde(flatten)]
    mode: Mode,
    batch: usize,
    way: &'a str,
}

#[derive(Serialize)]
struct Line<'a, H, T> {
    #[serde(flatten)]
    head: &'a H,
    #[serde(flatten)]
    outcome: Outcome<'a, T>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome<'a, T> {
    Done(&'a T),
    Failed(&'a Failure),
}

/// Prints the result of a batch as one line of JSON.
pub fn print<T: Serialize>(mode: Mode, batch: usize, way: &str, outcome: &Result<T, Failure>) -> anyhow::Result<()> {
    print_under(&Head { mode, batch, way }, outcome)
}

/// Prints a result after the fields of `head`, as one line of JSON.
pub fn print_under<H: Serialize, T: Serialize>(head: &H, outcome: &Result<T, Failure>) -> anyhow::Result<()> {
    let outcome = outcome.as_ref().map_or_else(Outcome::Failed, Outcome::Done);
    let line = serde_json::to_string(&Line { head, outcome })?;
    writeln!(stdout().lock(), "{line}")?;
    Ok(())
}

#[derive(Serialize)]
struct Way<'a> {
    way: &'a str,
}

/// Prints a result without a mode as one line of JSON.
pub fn say<T: Serialize>(way: &str, what: &T) -> anyhow::Result<()> {
    print_under(&Way { way }, &Ok(what))
}
