//! Terminals in the README, from snapshots of tests: what the commands print now.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use gpu_tuned_observe::plot::{Style, terminal};

const DIFF: &str = "cli/tests/cli/snapshots/cli__init__init_checkout.snap";
const REPORT: &str = "runtime/tests/it/snapshots/it__report__session_report.snap";
const MONITOR: &str = "cli/src/monitor/screen/snapshots/cargo_gpu_tuned__monitor__screen__tests__training_80.snap";

/// Columns of a terminal, and of the names and figures before the reasons of a report.
const COLUMNS: usize = 80;
const BEFORE_REASONS: usize = 36;
/// A mark in place of lines that are left out.
const LEFT_OUT: &str = "…";

/// Draws what `init` adds to `Cargo.toml`, and the report of the session of a program.
pub(crate) fn init(root: &Path) -> Result<String> {
    let (diff, report) = (snapshot(root, DIFF)?, snapshot(root, REPORT)?);
    // Without context and empty lines.
    let of_manifest = diff.lines().skip(1).take_while(|line| !line.starts_with("---"));
    let added = of_manifest.filter(|line| line.starts_with('+') && line.len() > 1).map(|line| {
        let style = if line.starts_with("+++") { Style::Faint } else { Style::Added };
        (style, line)
    });
    // Without the items of the memory.
    let rows = report.lines().filter(|line| !line.starts_with("    "));
    let reported = rows.flat_map(wrapped).map(|line| (Style::Plain, line));
    let lines = [(Style::Command, "$ cargo gpu-tuned init --checkout ../gpu-tuned")].into_iter().chain(added);
    let run = [
        (Style::Faint, LEFT_OUT),
        (Style::Plain, ""),
        (Style::Command, "$ cargo run --release --features rtx4090,cuda"),
    ];
    let lines = lines.chain(run).map(|(style, line)| (style, line.to_owned()));
    let lines: Vec<_> = lines.chain(reported).collect();
    Ok(terminal("cargo gpu-tuned init, and the report of a session", &lines))
}

/// Draws the monitor's screen.
pub(crate) fn monitor(root: &Path) -> Result<String> {
    let screen = snapshot(root, MONITOR)?;
    let lines: Vec<_> = screen.lines().map(|line| line.trim_matches('"').trim_end()).collect();
    let last = lines.len().saturating_sub(1);
    let styled = lines.iter().enumerate().map(|(row, line)| {
        let style = match row {
            0 | 1 => Style::Strong,
            _ if row == last => Style::Faint,
            _ => Style::Plain,
        };
        (style, (*line).to_owned())
    });
    Ok(terminal("cargo gpu-tuned monitor, on a simulated H200", &styled.collect::<Vec<_>>()))
}

/// Breaks a line of a report between words, and indents the rest below the reason.
fn wrapped(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (index, word) in line.split(' ').enumerate() {
        let last = lines.last_mut().expect("BUG: there is a line");
        if last.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(format!("{:BEFORE_REASONS$}{word}", ""));
        } else {
            last.push_str(if index == 0 { "" } else { " " });
            last.push_str(word);
        }
    }
    lines
}

/// Reads the text of a snapshot, without its header.
fn snapshot(root: &Path, file: &str) -> Result<String> {
    let text = fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))?;
    let (_, body) = text.split_once("\n---\n").with_context(|| format!("{file} has no header"))?;
    Ok(body.to_owned())
}
