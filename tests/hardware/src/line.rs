//! Lines of output.

use std::io::{Write, stdout};

use serde::Serialize;

use crate::{catching::Failure, mode::Mode};

#[derive(Serialize)]
struct Line<'a, T> {
    #[serde(flatten)]
    mode: Mode,
    batch: usize,
    way: &'a str,
    #[serde(flatten)]
    outcome: Outcome<'a, T>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome<'a, T> {
    Done(&'a T),
    Failed(&'a Failure),
}

/// Prints what came out of a batch as one line of JSON.
pub(crate) fn print<T: Serialize>(
    mode: Mode,
    batch: usize,
    way: &str,
    outcome: &Result<T, Failure>,
) -> anyhow::Result<()> {
    let outcome = outcome.as_ref().map_or_else(Outcome::Failed, Outcome::Done);
    let line = serde_json::to_string(&Line { mode, batch, way, outcome })?;
    writeln!(stdout().lock(), "{line}")?;
    Ok(())
}
