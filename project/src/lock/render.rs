//! Text of a lock: sorted, one value or measured micro-batch a line, so that diffs are short.

use core::fmt::Write;

use toml::{Table, Value};

use super::Lock;

const HEADER: &str = "\
# Measurements of this package's workloads, written by `cargo gpu-tuned measure`. Commit this file.
# After a conflicting merge keep either side, or delete the file, and measure again.
";

/// The file's text.
pub(super) fn text(root: &Table) -> String {
    let mut out = HEADER.to_owned();
    // First, because the format determines how to read the rest.
    if let Some(format) = root.get("format") {
        fact("format", format, &mut out);
    }
    let rest: Table = root.iter().filter(|(key, _)| *key != "format").map(|(k, v)| (k.clone(), v.clone())).collect();
    contents("", 0, &rest, &mut out);
    push(&mut out, format_args!("\n{}\n", Lock::END));
    out
}

/// Names from the root to a table of measured micro-batches: `workload.NAME.on.DEVICE.mode.MODE.batch`.
const BATCH_DEPTH: usize = 7;

/// Writes the values of a table, then the tables below it. `depth` counts the names of its path.
fn contents(path: &str, depth: usize, table: &Table, out: &mut String) {
    // A measured micro-batch is one line.
    let is_line = |value: &Value| !value.is_table() || depth == BATCH_DEPTH;
    let (lines, tables): (Vec<_>, Vec<_>) = sorted(table).into_iter().partition(|(_, value)| is_line(value));
    for (key, value) in lines {
        fact(key, value, out);
    }
    for (name, below) in tables.into_iter().filter_map(|(key, value)| Some((key, value.as_table()?))) {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{}", self::key(name));
        let has_lines = below.values().any(|value| !value.is_table()) || depth + 1 == BATCH_DEPTH;
        if below.is_empty() || has_lines {
            push(out, format_args!("\n[{path}]\n"));
        }
        contents(&path, depth + 1, below, out);
    }
}

/// Names that are numbers first and as numbers: batch 64 before batch 128.
fn sorted(table: &Table) -> Vec<(&str, &Value)> {
    let mut all: Vec<_> = table.iter().map(|(key, value)| (key.as_str(), value)).collect();
    all.sort_by_key(|(key, _)| (key.parse().unwrap_or(u64::MAX), *key));
    all
}

fn fact(name: &str, value: &Value, out: &mut String) {
    push(out, format_args!("{} = {}\n", key(name), inline(value)));
}

fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !name.is_empty() && name.bytes().all(is_bare) { name.to_owned() } else { quoted(name) }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Integer(whole) => grouped(*whole),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Table(table) if table.is_empty() => "{}".to_owned(),
        Value::Table(table) => {
            let facts = sorted(table).into_iter().map(|(name, value)| format!("{} = {}", key(name), inline(value)));
            format!("{{ {} }}", facts.collect::<Vec<_>>().join(", "))
        }
        Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => value.to_string(),
    }
}

/// Quotes a text, always on one line.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            char if char.is_control() => push(&mut out, format_args!("\\U{:08X}", u32::from(char))),
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

/// `1_548_747_520`; up to four digits as they are.
fn grouped(whole: i64) -> String {
    let digits = whole.unsigned_abs().to_string();
    let sign = if whole < 0 { "-" } else { "" };
    if digits.len() < 5 {
        return format!("{sign}{digits}");
    }
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    format!("{sign}{}", groups.join("_"))
}

fn push(out: &mut String, text: core::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("BUG: a text takes any text");
}
