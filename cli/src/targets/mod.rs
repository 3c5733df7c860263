//! `cargo gpu-tuned targets`.

mod catalogue;
mod details;
mod here;
mod search;

use gpu_tuned_core::device::ComputeCapability;
use gpu_tuned_core::profile::Peak;
use serde::Serialize;

use crate::args::{Common, gib};
use crate::error::Error;
use crate::output::{Answer, Code, FAINT, GOOD, MARKED, PLAIN, Table, or_dash, styled, wrapped};
use catalogue::{Catalogue, Entry, Nearness};
use search::{Found, Search};

/// List GPUs to build for: search profiles, show one with its sources, detect this machine's
///
/// Without a word, lists all shipped profiles and those of the package's gpu-tuned.toml. With the name of a profile, shows all
/// of its figures with their sources, the limits of plans, and the feature to add to Cargo.toml. No package is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help.txt"))]
pub(crate) struct TargetsArgs {
    /// Words to search for in names of profiles, products, architectures, chips and memory; every word must match
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Show profiles in full
    #[arg(long)]
    pub details: bool,
    /// Show the GPUs of this machine: their profiles, how certain those are, and the differences
    #[arg(long, conflicts_with_all = ["words", "min_memory", "compute_capability", "bf16", "project", "details"])]
    pub here: bool,
    /// Print the GPUs of this machine as profiles for gpu-tuned.toml, from the figures of NVML and CUDA
    #[arg(long, requires = "here", conflicts_with = "json")]
    pub toml: bool,
}

/// Filters of profiles.
#[derive(Debug, clap::Args)]
pub(crate) struct FilterArgs {
    /// Minimum memory, as advertised
    #[arg(long, value_name = "GIB", value_parser = gib)]
    pub min_memory: Option<f64>,
    /// Compute capability, such as 8.9
    #[arg(long, value_name = "MAJOR.MINOR")]
    pub compute_capability: Option<ComputeCapability>,
    /// Only with bf16 tensor cores
    #[arg(long)]
    pub bf16: bool,
    /// Only those that the package declares as features
    #[arg(long)]
    pub project: bool,
}

pub(crate) fn run(common: &Common, args: &TargetsArgs) -> Result<Answer, Error> {
    let (catalogue, mut notes) = Catalogue::read(common, args.filter.project)?;
    if args.toml {
        return Ok(here::profiles(&catalogue, notes));
    }
    if args.here {
        return Ok(here::answer(common, &catalogue, notes));
    }
    let entries = catalogue.entries();
    let search = Search::new(args);
    let Found { entries: found, exact } = search.among(&entries);
    if found.is_empty() {
        notes.push(search.no_match(&catalogue, &entries));
    } else if exact {
        notes.extend(search.others(&entries, &found));
    }
    let text = || {
        if exact || args.details {
            found.iter().map(|entry| details::text(entry)).collect::<Vec<_>>().join("\n")
        } else {
            list(&found)
        }
    };
    let code = if found.is_empty() { Code::No } else { Code::Ok };
    Ok(Answer::new(("targets", common.json), &Targets { targets: &found }, text, notes, code))
}

#[derive(Serialize)]
struct Targets<'a> {
    targets: &'a [&'a Entry<'a>],
}

const COLUMNS: [&str; 7] = ["  target", "family", ">cc", ">memory", ">GB/s", ">f32", ">bf16"];

fn list(entries: &[&Entry]) -> String {
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
        format!("{} GiB", in_gib(profile.memory.nominal_mib)),
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
fn in_gib(mib: u64) -> String {
    if mib.is_multiple_of(1024) { (mib / 1024).to_string() } else { format!("{:.1}", mib as f64 / 1024.0) }
}
