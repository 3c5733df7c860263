//! A GPU beside its profile or the nearest one, and the certainty of the match.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::{Difference, Match};
use gpu_tuned_core::profile::Profile;

use crate::output::{MARKED, PLAIN, Table, styled};

const COLUMNS: [&str; 3] = ["", ">here", ">profile"];

/// A line for each figure of the driver, with the profile's; `None` without any.
pub(super) fn table(reading: &GpuReading, found: &Match) -> Option<String> {
    let lines: Vec<_> = lines(reading, found).into_iter().flatten().collect();
    if lines.is_empty() {
        return None;
    }
    let mut table = Table::new(2, COLUMNS);
    for Line { name, here, profile, remark } in lines {
        let remark = if remark.is_empty() { remark } else { styled(MARKED, remark) };
        table.row(PLAIN, [name.to_owned(), here, profile.unwrap_or_default()], remark);
    }
    Some(table.print())
}

/// Power limit as a fraction of the board's default, where it is lower.
pub(super) fn power_cap(reading: &GpuReading) -> Option<f64> {
    let (limit, shipped) = (reading.power_limit_mw?, reading.default_power_limit_mw?);
    (limit < shipped).then(|| f64::from(limit) / f64::from(shipped))
}

struct Line {
    name: &'static str,
    here: String,
    profile: Option<String>,
    remark: String,
}

fn lines(reading: &GpuReading, found: &Match) -> [Option<Line>; 8] {
    let profile = found.profile();
    let differences = match found {
        Match::Variant { differences, .. } => differences.as_slice(),
        _ => &[],
    };
    let differs = |what: &str| differences.iter().any(|difference| is_in(difference, what));
    let count = |count: u32| count.to_string();
    let bits = |bits: u32| format!("{bits} bit");
    let capability = profile.map(|profile| profile.compute_capability.to_string());
    let sms = profile.and_then(|profile| profile.compute.sm_count);
    let bus = profile.and_then(|profile| profile.memory.bus_bits);
    let other_bus = reading.memory_bus_bits.is_some() && bus.is_some() && reading.memory_bus_bits != bus;
    [
        line("memory", reading.memory_total.map(exact), profile.map(memory), differs("memory")),
        line("reserved by driver", reading.memory_reserved.filter(|kept| kept.0 > 0).map(exact), None, false),
        line("free now", reading.memory_free.map(exact), None, false),
        line("memory bus", reading.memory_bus_bits.map(bits), bus.map(bits), other_bus),
        line("SMs", reading.sm_count.map(count), sms.map(count), differs("SMs")),
        line(
            "capability",
            reading.compute_capability.map(|it| it.to_string()),
            capability,
            differs("compute capability"),
        ),
        power(reading, profile),
        line("other processes", reading.other_processes.filter(|count| *count > 0).map(count), None, false),
    ]
}

fn line(name: &'static str, here: Option<String>, profile: Option<String>, differs: bool) -> Option<Line> {
    let remark = if differs { "differs".to_owned() } else { String::new() };
    here.map(|here| Line { name, here, profile, remark })
}

fn power(reading: &GpuReading, profile: Option<&Profile>) -> Option<Line> {
    let watts = f64::from(reading.power_limit_mw?) / 1e3;
    let published = profile.and_then(|profile| profile.board.tdp_w);
    let shipped = reading.default_power_limit_mw.map(|limit| f64::from(limit) / 1e3);
    let remark = match (power_cap(reading), shipped) {
        (Some(share), Some(shipped)) => format!("capped to {:.0}% of {shipped:.0} W", share * 100.0),
        _ if published.is_some_and(|published| (watts - published).abs() >= 1.0) => "differs".to_owned(),
        _ => String::new(),
    };
    let (here, profile) = (format!("{watts:.0} W"), published.map(|watts| format!("{watts:.0} W")));
    let name = if reading.is_mig_slice() { "board power limit" } else { "power limit" };
    Some(Line { name, here, profile, remark })
}

/// Memory as NVML reports it, else as advertised.
fn memory(profile: &Profile) -> String {
    let memory = &profile.memory;
    exact(Bytes::from_mib(*memory.nvml_total_mib.first().unwrap_or(&memory.nominal_mib)))
}

fn exact(bytes: Bytes) -> String {
    format!("{:.0} MiB", bytes.mib())
}

/// Certainty, a colon, and the reason.
pub(super) fn describe(reading: &GpuReading, found: &Match) -> String {
    match found {
        Match::Exact { profile } => {
            let (agree, unreported) = compared(reading, profile, &[]);
            let (agree, are) = (listed(&agree, "and"), are(&agree));
            if unreported.is_empty() {
                format!("exactly `{}`: {agree} {are} the profile's", profile.id)
            } else {
                let unreported = listed(&unreported, "or");
                format!(
                    "probably `{}`: {agree} {are} the profile's, the driver does not report {unreported}",
                    profile.id
                )
            }
        }
        Match::Variant { profile, differences } => {
            let (agree, _) = compared(reading, profile, differences);
            let agree = if agree.is_empty() {
                String::new()
            } else {
                format!(" {} {} the profile's, but", listed(&agree, "and"), are(&agree))
            };
            let differ: Vec<_> = differences.iter().map(ToString::to_string).collect();
            format!("nearest to `{}`:{agree} {}", profile.id, differ.join("; "))
        }
        Match::Class { compute_capability } => {
            let family = compute_capability.architecture().map_or_else(String::new, |family| format!(" ({family})"));
            format!(
                "no profile: none has its name or PCI id; planned by compute capability {compute_capability}{family} \
                 and the driver's figures"
            )
        }
        Match::Unknown => "unknown: the driver does not identify it".to_owned(),
    }
}

/// Properties that agree with the profile, and those that the driver does not report.
fn compared(
    reading: &GpuReading,
    profile: &Profile,
    differences: &[Difference],
) -> (Vec<&'static str>, Vec<&'static str>) {
    let differs = |what: &str| differences.iter().any(|difference| is_in(difference, what));
    let asked = [
        ("name", true, reading.name.is_some()),
        ("PCI id", !profile.pci_ids.is_empty(), reading.pci_id.is_some()),
        ("memory", true, reading.memory_total.is_some()),
        ("compute capability", true, reading.compute_capability.is_some()),
        ("SMs", profile.compute.sm_count.is_some(), reading.sm_count.is_some()),
    ];
    let asked = asked.into_iter().filter(|(what, is_known, _)| *is_known && !differs(what));
    let (said, unreported): (Vec<_>, Vec<_>) = asked.partition(|(_, _, is_said)| *is_said);
    let names = |all: Vec<(&'static str, bool, bool)>| all.into_iter().map(|(what, ..)| what).collect();
    (names(said), names(unreported))
}

pub(super) fn is_in(difference: &Difference, what: &str) -> bool {
    let of = match difference {
        Difference::Name { .. } => "name",
        Difference::PciId { .. } => "PCI id",
        Difference::Memory { .. } => "memory",
        Difference::ComputeCapability { .. } => "compute capability",
        Difference::SmCount { .. } => "SMs",
        _ => return false,
    };
    of == what
}

fn listed(items: &[&str], and: &str) -> String {
    match items {
        [] => "nothing".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} {and} {last}", first.join(", ")),
    }
}

fn are(items: &[&str]) -> &'static str {
    if items.len() == 1 && items != ["SMs"] { "is" } else { "are" }
}
