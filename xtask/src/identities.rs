//! Identities between the figures of the shipped profiles, so that a typing error in a figure is found.

use std::collections::BTreeMap;

use gpu_tuned_core::device::PciId;
use gpu_tuned_core::profile::{Basis, Peak, Profile, ProfileId};

/// NVIDIA's PCI vendor id.
const NVIDIA: u16 = 0x10de;

/// Data rates of memory in Gbit/s per pin, by kind: bandwidth is the rate times the width of the bus.
const DATA_RATES: [(&str, &[f64]); 11] = [
    ("GDDR5", &[5.0, 6.0, 7.23, 8.0]),
    ("GDDR5X", &[9.02, 10.0, 11.0, 11.42]),
    ("GDDR6", &[10.0, 12.0, 12.5, 13.0, 14.0, 14.5, 15.0, 15.5, 16.0, 17.0, 18.0, 20.0]),
    ("GDDR6X", &[19.0, 19.5, 21.0, 22.4, 23.0]),
    ("GDDR7", &[18.0, 24.0, 24.95, 28.0, 30.0]),
    ("HBM2", &[1.43, 1.7, 1.76, 1.92, 2.21, 2.43]),
    ("HBM2e", &[3.02, 3.19]),
    ("HBM3", &[5.2, 5.23]),
    ("HBM3e", &[6.25, 8.06, 8.33]),
    ("LPDDR5 unified", &[4.26, 6.4]),
    ("LPDDR5X unified", &[8.53]),
];

/// Tolerance of data rates: bandwidths are rounded to three or four digits.
const RATE_TOLERANCE: f64 = 0.006;
/// Tolerance of derived peaks, and of peaks in one format to another.
const DERIVED_TOLERANCE: f64 = 0.02;
/// Tolerance of published peaks: makers count with other clocks than the boost clock.
const PUBLISHED_TOLERANCE: f64 = 0.1;
/// Half of the last printed digit, TFLOP/s.
const ROUNDING: f64 = 0.06;

/// Finds contradictions between the figures of each profile, and PCI ids that profiles share without a mark.
pub(crate) fn mistakes<'a>(profiles: impl IntoIterator<Item = &'a Profile>) -> Vec<String> {
    let profiles: Vec<&Profile> =
        profiles.into_iter().filter(|profile| profile.id.as_str() != ProfileId::GENERIC).collect();
    let of_each = profiles.iter().flat_map(|profile| {
        let found = [capability(profile), bandwidth(profile), fp32(profile), tensor(profile)].concat();
        found.into_iter().map(|mistake| format!("{}: {mistake}", profile.id)).collect::<Vec<_>>()
    });
    of_each.chain(pci_ids(&profiles)).collect()
}

fn capability(profile: &Profile) -> Vec<String> {
    let known = profile.compute_capability.architecture();
    if known == Some(profile.architecture.as_str()) {
        return Vec::new();
    }
    let capability = profile.compute_capability;
    vec![format!("architecture: {} with compute capability {capability}, which is {known:?}", profile.architecture)]
}

/// Bandwidth = data rate x width of the bus.
fn bandwidth(profile: &Profile) -> Vec<String> {
    let memory = &profile.memory;
    let (Some(gb_s), Some(bits), Some(kind)) = (memory.bandwidth_gb_s, memory.bus_bits, memory.kind.as_deref()) else {
        return Vec::new();
    };
    let rate = gb_s * 8.0 / f64::from(bits);
    let known = DATA_RATES.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, rates)| rates);
    if known.iter().any(|known| (rate / known - 1.0).abs() <= RATE_TOLERANCE) {
        return Vec::new();
    }
    vec![format!("memory.bandwidth_gb_s: {gb_s} over {bits} bits is {rate:.2} Gbit/s per pin; {kind} has {known:?}")]
}

/// Peak = SMs x lanes x 2 x clock.
fn fp32(profile: &Profile) -> Vec<String> {
    let (Some(sms), Some(lanes)) = (profile.compute.sm_count, profile.compute_capability.cores_per_sm()) else {
        return Vec::new();
    };
    let expected = profile.compute.boost_mhz.map(|clock| f64::from(sms) * f64::from(lanes) * 2.0 * clock / 1e6);
    compare("fp32", profile.peaks.fp32.as_ref(), expected, "SMs x lanes x 2 x clock").into_iter().collect()
}

/// Tensor peak = SMs x operations x clock, half of it where the product halves accumulation in fp32. The peaks of other
/// formats are a multiple of the one in fp16.
fn tensor(profile: &Profile) -> Vec<String> {
    let Profile { compute, peaks, compute_capability: capability, .. } = profile;
    let mut found = Vec::new();
    let share = if compute.half_rate_fp32_accumulate { 0.5 } else { 1.0 };
    let clock = compute.tensor_clock_mhz.or(compute.boost_mhz);
    let expected = || {
        let operations = f64::from(compute.sm_count?) * f64::from(capability.tensor_f16_per_sm()?);
        Some(operations * share * clock? / 1e6)
    };
    found.extend(compare("fp16", peaks.fp16.as_ref(), expected(), "SMs x operations x clock"));
    let fp16 = peaks.fp16.as_ref().map(|peak| peak.tflops);
    for (name, peak, factor) in [("bf16", &peaks.bf16, 1.0), ("tf32", &peaks.tf32, 0.5), ("fp8", &peaks.fp8, 2.0)] {
        let expected = fp16.map(|fp16| fp16 * factor);
        found.extend(compare_within(DERIVED_TOLERANCE, name, peak.as_ref(), expected, "a multiple of the fp16 peak"));
    }
    // Without tensor cores fp16 runs at twice the rate of fp32, or at 1/64.
    let native = peaks.fp16_native.as_ref().zip(peaks.fp32.as_ref()).map(|(fp16, fp32)| fp16.tflops / fp32.tflops);
    if let Some(ratio) = native.filter(|ratio| (ratio / 2.0 - 1.0).abs() > 0.03 && (ratio * 64.0 - 1.0).abs() > 0.03) {
        found.push(format!("peaks.fp16_native: {ratio:.4} of the fp32 peak, expected 2 or 1/64"));
    }
    found
}

fn compare(name: &str, peak: Option<&Peak>, expected: Option<f64>, identity: &str) -> Option<String> {
    let is_derived = peak?.basis == Basis::Derived;
    compare_within(if is_derived { DERIVED_TOLERANCE } else { PUBLISHED_TOLERANCE }, name, peak, expected, identity)
}

fn compare_within(
    tolerance: f64,
    name: &str,
    peak: Option<&Peak>,
    expected: Option<f64>,
    identity: &str,
) -> Option<String> {
    let (tflops, expected) = (peak?.tflops, expected?);
    let is_near = (tflops - expected).abs() <= ROUNDING.max(expected * tolerance);
    (!is_near).then(|| format!("peaks.{name}: {tflops} TFLOP/s, but {identity} is {expected:.1}"))
}

/// PCI ids are NVIDIA's, and every shared one is marked in both profiles.
fn pci_ids(profiles: &[&Profile]) -> Vec<String> {
    let mut owners: BTreeMap<PciId, Vec<&ProfileId>> = BTreeMap::new();
    for profile in profiles {
        for id in &profile.pci_ids {
            owners.entry(*id).or_default().push(&profile.id);
        }
    }
    let mut found = Vec::new();
    for profile in profiles {
        for id in profile.pci_ids.iter().filter(|id| id.vendor != NVIDIA) {
            found.push(format!("{}: pci_ids: {id} is not NVIDIA's", profile.id));
        }
        let others = profile.pci_ids.iter().flat_map(|id| &owners[id]).filter(|id| **id != &profile.id);
        let mut others: Vec<ProfileId> = others.map(|id| (*id).clone()).collect();
        others.sort();
        others.dedup();
        if others != profile.pci_ids_shared_with {
            let marked = &profile.pci_ids_shared_with;
            found.push(format!("{}: pci_ids_shared_with: {others:?} have such an id, not {marked:?}", profile.id));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::profile::{Peak, Profile, ProfileTable};

    use super::mistakes;

    #[test]
    fn shipped_profiles_have_no_mistakes() {
        assert_eq!(mistakes(ProfileTable::builtin().iter()), [""; 0]);
    }

    /// A figure, as a number that can be changed.
    type Figure = (&'static str, fn(&mut Profile) -> Option<&mut f64>);

    fn tflops(peak: &mut Option<Peak>) -> Option<&mut f64> {
        peak.as_mut().map(|peak| &mut peak.tflops)
    }

    const FIGURES: [Figure; 7] = [
        ("bandwidth", |profile| profile.memory.bandwidth_gb_s.as_mut()),
        ("clock", |profile| profile.compute.boost_mhz.as_mut()),
        ("fp32", |profile| tflops(&mut profile.peaks.fp32)),
        ("tf32", |profile| tflops(&mut profile.peaks.tf32)),
        ("bf16", |profile| tflops(&mut profile.peaks.bf16)),
        ("fp16", |profile| tflops(&mut profile.peaks.fp16)),
        ("fp8", |profile| tflops(&mut profile.peaks.fp8)),
    ];

    /// Returns the number with its first two digits exchanged; `None` if they are alike.
    fn slipped(figure: f64) -> Option<f64> {
        let mut digits: Vec<char> = figure.to_string().chars().collect();
        let second = (1..digits.len()).find(|place| digits[*place].is_ascii_digit())?;
        digits.swap(0, second);
        let slipped: f64 = digits.into_iter().collect::<String>().parse().expect("digits");
        ((slipped / figure - 1.0).abs() > 0.1 && slipped > 0.0).then_some(slipped)
    }

    #[test]
    fn exchanged_digits_and_a_slipped_point_are_found() {
        let (mut tried, mut missed) = (0, Vec::new());
        for profile in ProfileTable::builtin().iter().filter(|profile| profile.id.as_str() != "generic") {
            for (name, figure) in FIGURES {
                let Some(is) = figure(&mut profile.clone()).copied() else { continue };
                for wrong in [slipped(is), Some(is * 10.0), Some(is / 10.0)].into_iter().flatten() {
                    let mut changed = profile.clone();
                    changed.pci_ids_shared_with.clear();
                    changed.pci_ids.clear();
                    *figure(&mut changed).expect("it has the figure") = wrong;
                    tried += 1;
                    if mistakes([&changed]).is_empty() {
                        missed.push((profile.id.as_str(), format!("{name} {is} as {wrong}")));
                    }
                }
            }
        }
        // Figures without a second one to compare: no bus width, no clock, no SM count.
        let alone = ["b300-sxm6", "gb300", "h20-141gb", "h20-96gb", "l2", "rtx-pro-6000-bw-server"];
        missed.retain(|(id, _)| !alone.contains(id));
        assert!(tried > 2000 && missed.is_empty(), "{tried}: {missed:#?}");
    }

    #[test]
    fn another_capability_and_a_foreign_or_unmarked_id_are_found() {
        let shipped = |id: &str| ProfileTable::builtin_profile(id).expect("a shipped profile");
        let (mut ampere, mut foreign, mut unmarked) = (shipped("rtx4090"), shipped("h200"), shipped("a2"));
        ampere.compute_capability = "8.6".parse().expect("a capability");
        foreign.pci_ids = vec!["1002:2335".parse().expect("an id")];
        unmarked.pci_ids_shared_with.clear();
        for (changed, expected) in [(&ampere, "architecture"), (&foreign, "not NVIDIA's"), (&unmarked, "shared_with")] {
            let table = ProfileTable::builtin().iter().filter(|profile| profile.id != changed.id);
            let found = mistakes(table.chain([changed]));
            assert!(found.iter().any(|mistake| mistake.contains(expected)), "{found:?}");
        }
    }
}
