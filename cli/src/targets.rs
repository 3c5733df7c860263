//! `cargo gpu-tuned targets`.

mod catalogue;
mod here;
mod library;

use gpu_tuned_core::device::ComputeCapability;
use gpu_tuned_core::profile::{Peak, Profile, ProfileId};
use gpu_tuned_project::gpu_names::{bare, find, suggest};
use serde::Serialize;

use crate::args::{Common, gib};
use crate::error::Error;
use crate::output::{Answer, BOLD, Code, FAINT, GOOD, MARKED, PLAIN, Table, or_dash, section, styled, wrapped};
use crate::view::memory_origin;
use catalogue::{Catalogue, Entry, Limits, Nearness};

/// List GPUs to build for: search profiles, show one with its sources, detect this machine's
///
/// Without a word, lists all shipped profiles and those of the package's gpu-tuned.toml. With the name of a profile, shows all
/// of its figures with their sources, the limits of plans, and the feature to add to Cargo.toml. No package is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("targets/help.txt"))]
pub(crate) struct TargetsArgs {
    /// Words to search for in names of profiles, products, architectures, chips and memory; every word must match
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Show profiles in full
    #[arg(long)]
    pub details: bool,
    /// Show the GPUs of this machine: their profiles, how certain those are, the differences, and the library of kernels
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
            found.iter().map(|entry| details_text(entry)).collect::<Vec<_>>().join("\n")
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
        let (mark, style) = match entry.here {
            Some(Nearness::Exact) => ('*', GOOD),
            Some(Nearness::Variant) => ('~', MARKED),
            None => (' ', PLAIN),
        };
        table.row(style, cells(entry, mark), if entry.own { "own" } else { "" });
    }
    table.print() + "\n" + &legend(entries).iter().map(|line| styled(FAINT, line) + "\n").collect::<String>()
}

fn cells(entry: &Entry, mark: char) -> Vec<String> {
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

struct Search<'a> {
    filter: &'a FilterArgs,
    words: Vec<&'a str>,
}

struct Found<'a, 'e> {
    pub entries: Vec<&'a Entry<'e>>,
    /// True if the words are the name of the only entry.
    pub exact: bool,
}

const MAX_LISTED: usize = 6;

impl<'a> Search<'a> {
    fn new(args: &'a TargetsArgs) -> Self {
        Self { filter: &args.filter, words: args.words.iter().flat_map(|word| word.split_whitespace()).collect() }
    }

    /// The entry with this name, else all that match every word.
    fn among<'s, 'e>(&self, entries: &'s [Entry<'e>]) -> Found<'s, 'e> {
        let (entries, exact) = match self.named(entries) {
            Some(entry) => (vec![entry], true),
            None => (self.matching(entries), false),
        };
        Found { entries: entries.into_iter().filter(|entry| self.passes(entry)).collect(), exact }
    }

    /// The entry with this id, or the only one with this product name.
    fn named<'s, 'e>(&self, entries: &'s [Entry<'e>]) -> Option<&'s Entry<'e>> {
        let profile = find(&entries.iter().map(|entry| entry.profile).collect::<Vec<_>>(), &self.words)?;
        entries.iter().find(|entry| entry.profile.id == profile.id)
    }

    fn matching<'s, 'e>(&self, entries: &'s [Entry<'e>]) -> Vec<&'s Entry<'e>> {
        let has_all = |entry: &&Entry| self.words.iter().all(|word| has(entry.profile, word));
        entries.iter().filter(|entry| !entry.is_generic()).filter(has_all).collect()
    }

    fn passes(&self, entry: &Entry) -> bool {
        let (filter, profile) = (self.filter, entry.profile);
        let memory_gib = profile.memory.nominal_mib as f64 / 1024.0;
        let capability = profile.compute_capability;
        filter.min_memory.is_none_or(|least| memory_gib >= least)
            && filter.compute_capability.is_none_or(|wanted| capability == wanted)
            && (!filter.bf16 || capability.has_tensor_bf16())
            && (!filter.project || entry.declared)
    }

    fn others(&self, entries: &[Entry], shown: &[&Entry]) -> Option<String> {
        let is_shown = |entry: &&Entry| shown.iter().any(|shown| shown.target == entry.target);
        let others: Vec<_> = self.matching(entries).into_iter().filter(|entry| !is_shown(entry)).collect();
        let found = format!("also with `{}`: {}", self.words.join(" "), names(&others));
        (!others.is_empty()).then_some(found)
    }

    /// A note that nothing matches, with the nearest names.
    fn no_match(&self, catalogue: &Catalogue, entries: &[Entry]) -> String {
        let of_project = catalogue.project.as_ref().filter(|_| self.filter.project);
        if let Some(project) = of_project.filter(|_| !entries.iter().any(|entry| entry.declared)) {
            return format!("`{}` declares no GPU; declare one in Cargo.toml: [features] h200 = []", project.name());
        }
        let unfiltered = self.named(entries).map_or_else(|| self.matching(entries), |entry| vec![entry]);
        let words = self.words.join(" ");
        match (words.as_str(), unfiltered.as_slice()) {
            ("", _) => "no profile passes the filters".to_owned(),
            (_, []) => format!("no profile matches `{words}`{}", self.hint(catalogue)),
            (_, found) => {
                format!("no profile matches `{words}` and passes the filters; without them: {}", names(found))
            }
        }
    }

    /// The likely name, else the way to a profile.
    fn hint(&self, catalogue: &Catalogue) -> String {
        let known = catalogue.known();
        suggest(&known, &self.words).unwrap_or_else(|| known.suggest_or_advise(&self.words.join("-")))
    }
}

/// Returns true if a word is part of a name of the GPU, begins the name of its architecture, chip or memory, or is a PCI id.
fn has(profile: &Profile, word: &str) -> bool {
    let wanted = bare(word);
    let mut names = profile.names.iter().map(String::as_str).chain([profile.id.as_str()]);
    let mut kinds =
        [Some(&profile.architecture), profile.chip.as_ref(), profile.memory.kind.as_ref()].into_iter().flatten();
    let is_said = names.any(|name| bare(name).contains(&wanted))
        || kinds.any(|kind| bare(kind).starts_with(&wanted))
        || profile.pci_ids.iter().any(|id| id.to_string().eq_ignore_ascii_case(word));
    !wanted.is_empty() && is_said
}

fn names(entries: &[&Entry]) -> String {
    let named: Vec<_> = entries.iter().take(MAX_LISTED).map(|entry| entry.target).collect();
    let more = entries.len() - named.len();
    named.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// Usual feature for training on GPUs.
const CUDA: &str = "cuda";

const FIGURES: [&str; 2] = ["", ""];
const AMOUNTS: [&str; 2] = ["", ">"];

fn details_text(entry: &Entry) -> String {
    let profile = entry.profile;
    let mut text = heading(entry) + &figures(profile);
    for unknown in &profile.unknown {
        text += &remark("unknown", unknown);
    }
    text.extend(profile.notes.as_deref().map(|notes| remark("note", notes)));
    text += &section("limits of a plan", &limits(&entry.limits, memory_origin(&profile.memory)));
    if !entry.is_generic() {
        text += &section(
            "to build for it",
            &features(&[entry.target], |name| if name == CUDA { entry.trains } else { entry.declared }),
        );
    }
    if !entry.sources.is_empty() {
        text += &section("sources", &sources(entry));
    }
    text
}

fn heading(entry: &Entry) -> String {
    let mut text = styled(BOLD, entry.target);
    text.extend(match entry.here {
        Some(Nearness::Exact) => Some(", ".to_owned() + &styled(GOOD, "in this machine")),
        Some(Nearness::Variant) => Some(", ".to_owned() + &styled(MARKED, "nearest to a GPU of this machine")),
        None => None,
    });
    text.push('\n');
    if entry.own {
        text += "  a profile of gpu-tuned.toml; sources and missing figures are those of its base\n";
    }
    text
}

/// Names and PCI ids, then all figures. Sources of names are not aligned, as names are long.
fn figures(profile: &Profile) -> String {
    let mut table = Table::new(2, FIGURES);
    let said = |text: &str, source: &Option<String>| match source {
        Some(source) => format!("{text}  {}", styled(FAINT, source)),
        None => text.to_owned(),
    };
    for (index, name) in profile.names.iter().enumerate() {
        let label = if index == 0 { "called" } else { "" };
        table.row(PLAIN, [label.to_owned()], said(name, &profile.names_source));
    }
    let ids: Vec<_> = profile.pci_ids.iter().map(ToString::to_string).collect();
    if !ids.is_empty() {
        table.row(PLAIN, ["PCI ids".to_owned()], said(&ids.join(", "), &profile.pci_ids_source));
    }
    for figure in profile.print_figures() {
        table.row(PLAIN, [figure.name.to_owned(), figure.value], styled(FAINT, figure.source));
    }
    table.print()
}

fn remark(label: &str, text: &str) -> String {
    format!("  {} {}\n", styled(MARKED, format!("{label}:")), wrapped(text, label.len() + 4))
}

/// Figures that limit plans, with their origins.
fn limits(limits: &Limits, available: &str) -> String {
    let headroom = format!("{}% of it, unless you set memory_headroom", limits.headroom_share * 100.0);
    let is_piece = limits.largest_allocation < Some(limits.training);
    let largest = if is_piece { "CubeCL allocates no more in one piece" } else { "all memory for training" };
    let mut table = Table::new(2, AMOUNTS);
    let figures = [
        ("memory", Some(limits.available), available),
        ("headroom", Some(limits.headroom), headroom.as_str()),
        ("context", Some(limits.context), "estimated from the SMs"),
        ("for training", Some(limits.training), ""),
        ("largest tensor", limits.largest_allocation, largest),
    ];
    for (name, bytes, why) in figures {
        if let Some(bytes) = bytes {
            let why = if why.is_empty() { String::new() } else { styled(FAINT, why) };
            table.row(PLAIN, [name.to_owned(), bytes.to_string()], why);
        }
    }
    table.print()
}

/// Features to add to `Cargo.toml`, and the command that trains with them.
fn features(ids: &[&str], is_declared: impl Fn(&str) -> bool) -> String {
    let enables = |id: &str| if id == ProfileId::NATIVE { "[\"gpu-tuned-build/native\"]" } else { "[]" };
    let lines = ids.iter().map(|id| (*id, enables(id))).chain([(CUDA, "[\"gpu-tuned/cuda\"]")]);
    let missing = lines.filter(|(name, _)| !is_declared(name));
    let missing = missing.fold(String::new(), |text, (name, enables)| text + &format!("  {name} = {enables}\n"));
    let declare = if missing.is_empty() {
        "  # Cargo.toml declares it\n".to_owned()
    } else {
        format!("  # Cargo.toml\n  [features]\n{missing}\n")
    };
    ids.iter().fold(declare, |text, id| text + &format!("  cargo run --release --features {id},{CUDA}\n"))
}

fn sources(entry: &Entry) -> String {
    let width = entry.sources.keys().map(|code| code.len()).max().unwrap_or_default();
    let line = |(code, words): (&&str, &&str)| format!("  {code:<width$}  {}\n", wrapped(words, width + 4));
    entry.sources.iter().map(line).collect()
}
