//! Planned settings that were run beside a process that held the rest of the memory.

use std::fmt::Write as _;

use anyhow::Result;

use super::data::Line;
use super::figures::{mib, or_dash};

/// Whether the steps ran to their end.
fn ran(line: &Line) -> bool {
    !line.out_of_memory && line.reserved().is_some()
}

/// Runs that failed, of all.
pub(super) fn failed(lines: &[Line]) -> String {
    format!("{} of {}", lines.iter().filter(|line| !ran(line)).count(), lines.len())
}

/// The section about them.
pub(super) fn section(text: &mut String, lines: &[Line]) -> Result<()> {
    text.push_str(
        "\n## Smaller cards\n\nAnother process held all memory but so much, and twelve steps were taken as they are planned for \
         that much.\n",
    );
    if lines.is_empty() {
        text.push_str("\nNot measured yet.\n");
        return Ok(());
    }
    text.push_str("\n| model | mode | free, MiB | planned | pools held, MiB | |\n|---|---|---|---|---|---|\n");
    for line in lines {
        writeln!(
            text,
            "| {} | {} | {} | {} x {} | {} | {} |",
            line.model,
            line.mode(),
            or_dash(line.free_mib, |free| free.to_string()),
            line.accumulate,
            line.batch,
            or_dash(line.reserved(), mib),
            if ran(line) { "ran" } else { "failed" },
        )?;
    }
    Ok(())
}
