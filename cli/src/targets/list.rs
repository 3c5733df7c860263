//! Profiles as a table.

use gpu_tuned_core::profile::Peak;

use super::catalogue::{Entry, Nearness};
use crate::output::{FAINT, GOOD, MARKED, PLAIN, Table, or_dash, styled, wrapped};

const COLUMNS: [&str; 7] = ["  target", "family", ">cc", ">memory", ">GB/s", ">f32", ">bf16"];

pub(super) fn text(entries: &[&Entry]) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let mut table = Table::new(0, COLUMNS);
    for entry in entries {
        let style = match entry.here {
            Some(Nearness::Exact) => GOOD,
            Some(Nearness::Variant) => MARKED,
            None => PLAIN,
        };
        table.row(style, cells(entry), if entry.own { "own" } else { "" });
    }
    table.print() + "\n" + &legend(entries).iter().map(|line| styled(FAINT, line) + "\n").collect::<String>()
}

fn cells(entry: &Entry) -> Vec<String> {
    let mark = match entry.here {
        Some(Nearness::Exact) => '*',
        Some(Nearness::Variant) => '~',
        None => ' ',
    };
    let profile = entry.profile;
    let peak = |peak: &Option<Peak>| or_dash(peak.as_ref().map(|peak| figure(peak.tflops)));
    vec![
        format!("{mark} {}", entry.target),
        profile.architecture.clone(),
        profile.compute_capability.to_string(),
        format!("{} GiB", gib(profile.memory.nominal_mib)),
        or_dash(profile.memory.bandwidth_gb_s.map(|rate| format!("{rate:.0}"))),
        peak(&profile.peaks.fp32),
        peak(&profile.peaks.bf16),
    ]
}

fn legend(entries: &[&Entry]) -> Vec<String> {
    let has = |nearness| entries.iter().any(|entry| entry.here == Some(nearness));
    let count = entries.len();
    let what = "cc: compute capability; memory as advertised; f32 and bf16: dense peaks in TFLOP/s, - where unknown";
    let mut lines = vec![wrapped(&format!("{count} profile{}; {what}", if count == 1 { "" } else { "s" }), 0)];
    lines.extend(has(Nearness::Exact).then(|| "*: in this machine".to_owned()));
    lines.extend(
        has(Nearness::Variant).then(|| "~: nearest to a GPU of this machine; --here shows the differences".into()),
    );
    lines.extend(entries.iter().any(|entry| entry.own).then(|| "own: a profile of gpu-tuned.toml".to_owned()));
    if let [only] = entries {
        lines.push(format!("in full: cargo gpu-tuned targets {}", only.target));
    }
    lines
}

/// A rate with three significant digits or more.
fn figure(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// A size in GiB; whole ones without a fraction.
fn gib(mib: u64) -> String {
    if mib.is_multiple_of(1024) { (mib / 1024).to_string() } else { format!("{:.1}", mib as f64 / 1024.0) }
}
