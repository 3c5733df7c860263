//! A detected GPU as a `[profile.NAME]` of `gpu-tuned.toml`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::profile::{DetectedProfile, NoDescription, Profile, ProfileId};
use toml::{Table, Value};

/// A profile of a detected GPU, as TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedGpu {
    /// Name of the profile.
    pub id: ProfileId,
    /// The table `[profile.ID]`. Estimated figures have a comment with their source.
    pub text: String,
}

/// Describes a GPU by its reading. `exact` is the profile that the GPU matches exactly; figures that the driver does not
/// report come from it. Without one, they are left out or estimated. `is_taken` is true for names of other profiles.
///
/// # Errors
///
/// [`NoDescription`] for a part of a GPU, or if a figure that every profile needs is unknown.
pub fn describe(
    reading: &GpuReading,
    exact: Option<&Profile>,
    is_taken: impl Fn(&str) -> bool,
) -> Result<DescribedGpu, NoDescription> {
    let mut detected = DetectedProfile::new(reading, exact)?;
    if exact.is_none() {
        detected.profile.id = profile_id(&detected.profile, is_taken);
    }
    Ok(DescribedGpu { text: print(&detected), id: detected.profile.id })
}

/// Parts of product names that distinguish no GPUs.
const LEFT_OUT: [&str; 7] = ["nvidia", "geforce", "tesla", "generation", "edition", "gpu", "graphics"];

/// Series whose number belongs to the name: `rtx4090`.
const SERIES: [&str; 3] = ["gtx", "rtx", "mx"];

/// Longest name, in characters.
const LONGEST: usize = 40;

/// The name of the GPU as a profile's. If another profile has the name, memory or the SM count distinguish the GPU.
fn profile_id(profile: &Profile, is_taken: impl Fn(&str) -> bool) -> ProfileId {
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

/// Keys outside the tables of a profile.
const IDENTITY: [&str; 10] = [
    "names",
    "names_source",
    "pci_ids",
    "pci_ids_source",
    "architecture",
    "compute_capability",
    "mobile",
    "sources",
    "unknown",
    "estimated",
];

/// Prints a profile as a table of `gpu-tuned.toml`, with a comment beside each figure that the driver does not report.
fn print(DetectedProfile { profile, notes }: &DetectedProfile) -> String {
    let all = profile.to_table();
    let id = &profile.id;
    let mut text = format!("[profile.{id}]\n{}", lines("", &IDENTITY, &all, notes));
    for (name, keys) in Profile::TABLES {
        let table = all.get(*name).and_then(Value::as_table).filter(|table| !table.is_empty());
        if let Some(table) = table {
            text += &format!("\n[profile.{id}.{name}]\n{}", lines(&format!("{name}."), keys, table, notes));
        }
    }
    text
}

/// A line for each key that the table has. `path` precedes keys in `notes`.
fn lines(path: &str, keys: &[&str], table: &Table, notes: &BTreeMap<&'static str, String>) -> String {
    let line = |key: &&str| {
        let value = match table.get(*key)? {
            Value::Table(peak) => {
                let [tflops, basis, source] = ["tflops", "basis", "source"].map(|key| &peak[key]);
                format!("{{ tflops = {tflops}, basis = {basis}, source = {source} }}")
            }
            value => value.to_string(),
        };
        let note = notes.get(format!("{path}{key}").as_str()).filter(|note| !note.is_empty());
        let comment = note.map_or_else(String::new, |note| format!(" # {note}"));
        Some(format!("{key} = {value}{comment}\n"))
    };
    keys.iter().filter_map(line).collect()
}
