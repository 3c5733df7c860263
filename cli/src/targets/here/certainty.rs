//! Certainty of a match between a GPU and a profile.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::{Difference, Match};
use gpu_tuned_core::profile::Profile;

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
