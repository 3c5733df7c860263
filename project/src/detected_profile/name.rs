//! Name of a profile, from the name of the GPU.

use gpu_tuned_core::profile::{Profile, ProfileId};

/// Parts of product names that distinguish no GPUs.
const LEFT_OUT: [&str; 7] = ["nvidia", "geforce", "tesla", "generation", "edition", "gpu", "graphics"];

/// Series whose number belongs to the name: `rtx4090`.
const SERIES: [&str; 3] = ["gtx", "rtx", "mx"];

/// Longest name, in characters.
const LONGEST: usize = 40;

/// The name of the GPU as a profile's. If another profile has the name, memory or the SM count distinguish the GPU.
pub(super) fn profile_id(profile: &Profile, is_taken: impl Fn(&str) -> bool) -> ProfileId {
    let Profile { names, compute_capability: capability, memory, compute, .. } = profile;
    let base = base(names.first().map_or("", String::as_str))
        .unwrap_or_else(|| format!("sm{}{}", capability.major, capability.minor));
    let gib = memory.nominal_mib.div_ceil(1024);
    let sized = format!("{base}-{gib}gb");
    let counted = format!("{sized}-{}sm", compute.sm_count.unwrap_or_default());
    let names = [base, sized, counted.clone()].into_iter().find(|name| !is_taken(name));
    // A number distinguishes GPUs that have the same figures.
    let numbered = || (2..1000).map(|number| format!("{counted}-{number}")).find(|name| !is_taken(name));
    let id = names.or_else(numbered).and_then(|name| name.parse().ok());
    id.expect("BUG: no name is free, or letters, digits and hyphens are no profile id")
}

/// The product name in lower case, with hyphens between its parts; `None` without a letter in front.
fn base(product: &str) -> Option<String> {
    let product = product.to_ascii_lowercase();
    let parts = product.split(|c: char| !c.is_ascii_alphanumeric());
    let mut name = String::new();
    let mut is_series = false;
    for part in parts.filter(|part| !part.is_empty() && !LEFT_OUT.contains(part)) {
        let is_number = part.starts_with(|c: char| c.is_ascii_digit());
        let is_attached = name.is_empty() || (is_series && is_number);
        if !is_attached {
            name.push('-');
        }
        name += part;
        is_series = SERIES.contains(&part);
    }
    name.truncate(LONGEST);
    let name = name.trim_end_matches('-');
    ProfileId::of_user(name).is_ok().then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::base;
    use gpu_tuned_core::profile::ProfileTable;

    #[test]
    fn names_follow_those_of_the_shipped_profiles() {
        for (product, name) in [
            ("NVIDIA GeForce RTX 3070 Ti Laptop GPU", Some("rtx3070-ti-laptop")),
            ("GeForce GTX 980", Some("gtx980")),
            ("NVIDIA RTX A4000", Some("rtx-a4000")),
            ("NVIDIA RTX 6000 Ada Generation", Some("rtx6000-ada")),
            ("Tesla P100-PCIE-16GB", Some("p100-pcie-16gb")),
            ("Orin (nvgpu)", Some("orin-nvgpu")),
            ("NVIDIA Graphics Device", Some("device")),
            ("4090", None),
            ("native", None),
            ("NVIDIA CUDA", None),
            ("Default", None),
            ("CPU", None),
            ("all", None),
            ("generic", None),
            ("\u{202e}\n", None),
            ("", None),
        ] {
            assert_eq!(base(product).as_deref(), name, "{product}");
        }
        assert!(base(&"x-".repeat(500)).is_some_and(|name| name.len() < 41));
    }

    #[test]
    fn shipped_profiles_have_the_name_of_their_product() {
        /// Profiles that add or leave out a part of the name.
        const OTHERS: [&str; 10] = [
            "a100-pcie-80gb",
            "a800-pcie-80gb",
            "b300-sxm6",
            "gh200-",
            "h100-sxm5-80gb",
            "h20-141gb",
            "jetson-",
            "quadro-rtx-",
            "rtx-pro-",
            "rtx3050-laptop-6gb",
        ];
        let profiles: Vec<_> = ProfileTable::builtin().iter().filter(|profile| !profile.names.is_empty()).collect();
        let is_same = |id: &str, name: &str| base(name).is_some_and(|name| id.starts_with(&name));
        let others = profiles.iter().filter(|profile| !is_same(profile.id.as_str(), &profile.names[0]));
        let others = others.map(|profile| profile.id.as_str());
        let unexpected: Vec<_> = others.filter(|id| !OTHERS.iter().any(|other| id.starts_with(other))).collect();
        assert_eq!(unexpected, [""; 0]);
    }
}
