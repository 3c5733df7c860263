use super::{Strictness, faults};
use crate::profile::{Peak, Profile, ProfileId, ProfileTable};

fn gpus() -> impl Iterator<Item = &'static Profile> {
    ProfileTable::builtin().iter().filter(|profile| profile.id.as_str() != ProfileId::GENERIC)
}

fn messages(profile: &Profile, strictness: Strictness) -> Vec<String> {
    faults(profile, strictness).iter().map(ToString::to_string).collect()
}

#[test]
fn shipped_profiles_have_no_faults_by_either_tolerance() {
    for profile in gpus() {
        for strictness in [Strictness::Shipped, Strictness::User] {
            assert_eq!(messages(profile, strictness), [""; 0], "{} {strictness:?}", profile.id);
        }
    }
    let generic = ProfileTable::builtin_profile(ProfileId::GENERIC).expect("shipped");
    assert_eq!(messages(&generic, Strictness::User), [""; 0]);
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

/// Wrong figures that pass the checks, of all that are tried.
fn missed(strictness: Strictness, wrong: fn(f64) -> Vec<f64>) -> (usize, Vec<String>) {
    let (mut tried, mut missed) = (0, Vec::new());
    for profile in gpus() {
        for (name, figure) in FIGURES {
            let Some(right) = figure(&mut profile.clone()).copied() else { continue };
            for wrong in wrong(right) {
                let mut changed = profile.clone();
                *figure(&mut changed).expect("it has the figure") = wrong;
                tried += 1;
                if faults(&changed, strictness).is_empty() {
                    missed.push(format!("{} {name} {right} as {wrong}", profile.id));
                }
            }
        }
    }
    (tried, missed)
}

#[test]
fn exchanged_digits_and_a_slipped_point_are_found_in_shipped_profiles() {
    let wrong = |right: f64| [slipped(right), Some(right * 10.0), Some(right / 10.0)].into_iter().flatten().collect();
    let (tried, mut missed) = missed(Strictness::Shipped, wrong);
    // Figures without a second one to compare: no bus width, no clock, no SM count.
    let alone = ["b300-sxm6", "gb300", "h20-141gb", "h20-96gb", "l2", "rtx-pro-6000-bw-server"];
    missed.retain(|missed| !alone.iter().any(|id| missed.starts_with(id)));
    assert!(tried > 2000 && missed.is_empty(), "{tried}: {missed:#?}");
}

#[test]
fn other_units_are_found_in_every_profile_of_a_user() {
    let (tried, missed) = missed(Strictness::User, |right| vec![right * 1e3, right / 1e3, 0.0, -right, f64::NAN]);
    assert!(tried > 4000 && missed.is_empty(), "{tried}: {missed:#?}");
    let (tried, missed) = self::missed(Strictness::User, |right| vec![right * 10.0, right / 10.0]);
    assert!(missed.len() * 10 < tried, "{} of {tried}: {missed:#?}", missed.len());
}

#[test]
fn sparse_peaks_of_data_sheets_are_found() {
    let (_, missed) = missed(Strictness::User, |right| vec![right * 2.0]);
    let peaks = ["tf32", "bf16", "fp16", "fp8"];
    let peaks: Vec<_> = missed.iter().filter(|missed| peaks.iter().any(|peak| missed.contains(peak))).collect();
    assert!(peaks.len() < 40, "{} {peaks:#?}", peaks.len());
}

#[test]
fn another_capability_and_a_foreign_id_are_found() {
    let mut rtx4090 = ProfileTable::builtin_profile("rtx4090").expect("shipped");
    for (capability, expected) in [
        ("8.6", "architecture = \"Ada\", expected Ampere (compute capability 8.6)"),
        ("42.0", "compute_capability = 42.0 is out of range, expected 2.0 to 15.9"),
        ("8.7", "compute_capability = 8.7 is that of GPUs that share the host's memory"),
    ] {
        rtx4090.compute_capability = capability.parse().expect("a capability");
        let found = messages(&rtx4090, Strictness::User);
        assert!(found.iter().any(|message| message.starts_with(expected)), "{found:?}");
    }
    rtx4090.pci_ids = vec!["1002:2335".parse().expect("an id")];
    let found = messages(&rtx4090, Strictness::User);
    assert!(found.iter().any(|message| message.contains("1002:2335 is not NVIDIA's")), "{found:?}");
}
