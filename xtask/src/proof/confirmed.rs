//! Planned settings, run beside a process that occupied the other memory.

use std::fmt::Write as _;

use anyhow::Result;

use super::data::Line;
use super::figures::{mib, or_dash};

/// Returns true if all steps ran.
fn ran(line: &Line) -> bool {
    !line.out_of_memory && line.reserved().is_some()
}

/// Number of failed runs, of all.
pub(super) fn failed(lines: &[Line]) -> String {
    format!("{} of {}", lines.iter().filter(|line| !ran(line)).count(), lines.len())
}

/// Writes the section about these runs.
pub(super) fn section(text: &mut String, lines: &[Line]) -> Result<()> {
    text.push_str(
        "\n## Smaller cards\n\nTwelve steps ran with the settings planned for the free memory, while another process occupied all \
         other memory.\n",
    );
    if lines.is_empty() {
        text.push_str("\nNot measured yet.\n");
        return Ok(());
    }
    text.push_str("\n| model | mode | free, MiB | planned | pools reserved, MiB | |\n|---|---|---|---|---|---|\n");
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
