//! How sure it is which GPU this is, and why.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::{Difference, Match};
use gpu_tuned_core::profile::Profile;

/// How sure it is, a colon, and why.
pub(super) fn in_words(reading: &GpuReading, found: &Match) -> String {
    match found {
        Match::Exact { profile } => {
            let (agree, unsaid) = compared(reading, profile, &[]);
            let (agree, are) = (listed(&agree, "and"), are(&agree));
            if unsaid.is_empty() {
                format!("exactly `{}`: {agree} {are} the profile's", profile.id)
            } else {
                let unsaid = listed(&unsaid, "or");
                format!(
                    "`{}` as far as can be told: {agree} {are} the profile's, the driver does not say {unsaid}",
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
                "no profile: none has its name or PCI id; compute capability {compute_capability}{family} says what it \
                 can do, and the driver how much of it"
            )
        }
        Match::Unknown => "unknown: the driver says nothing that identifies it".to_owned(),
    }
}

/// What is the profile's, and what the driver does not say.
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
        ("multiprocessors", profile.compute.sm_count.is_some(), reading.sm_count.is_some()),
    ];
    let asked = asked.into_iter().filter(|(what, is_known, _)| *is_known && !differs(what));
    let (said, unsaid): (Vec<_>, Vec<_>) = asked.partition(|(_, _, is_said)| *is_said);
    let names = |all: Vec<(&'static str, bool, bool)>| all.into_iter().map(|(what, ..)| what).collect();
    (names(said), names(unsaid))
}

fn is_in(difference: &Difference, what: &str) -> bool {
    let of = match difference {
        Difference::Name { .. } => "name",
        Difference::PciId { .. } => "PCI id",
        Difference::Memory { .. } => "memory",
        Difference::ComputeCapability { .. } => "compute capability",
        Difference::SmCount { .. } => "multiprocessors",
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
    if items.len() == 1 && items != ["multiprocessors"] { "is" } else { "are" }
}
