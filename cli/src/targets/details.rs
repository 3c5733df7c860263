//! One profile in full.

use gpu_tuned_core::profile::{Profile, ProfileId};

use super::catalogue::{Entry, Limits, Nearness};
use crate::output::{BOLD, FAINT, GOOD, MARKED, PLAIN, Table, section, styled, wrapped};
use crate::view::memory_origin;

/// Usual feature for training on GPUs.
pub(super) const CUDA: &str = "cuda";

const FIGURES: [&str; 2] = ["", ""];
const AMOUNTS: [&str; 2] = ["", ">"];

pub(super) fn text(entry: &Entry) -> String {
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
pub(super) fn limits(limits: &Limits, available: &str) -> String {
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
pub(super) fn features(ids: &[&str], is_declared: impl Fn(&str) -> bool) -> String {
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
