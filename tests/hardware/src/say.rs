//! Lines of output that belong to no mode.

use std::io::{Write, stdout};

use serde::Serialize;

#[derive(Serialize)]
struct Said<'a, T> {
    way: &'a str,
    #[serde(flatten)]
    what: &'a T,
}

/// Prints what was found as one line of JSON.
pub(crate) fn say<T: Serialize>(way: &str, what: &T) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&Said { way, what })?)?;
    out.flush()?;
    Ok(())
}
