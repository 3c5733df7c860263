//! Keys of a user's profile that a plan needs.

use std::sync::OnceLock;

use toml::de::DeTable;

/// A key of a profile.
struct Key {
    /// Path of the key, with dots between tables.
    path: &'static str,
    /// A value, as TOML.
    example: &'static str,
    /// Meaning and unit.
    meaning: &'static str,
    /// Effect of its absence; `None` for a required key.
    absence: Option<&'static str>,
}

const fn key(path: &'static str, example: &'static str, meaning: &'static str, absence: Option<&'static str>) -> Key {
    Key { path, example, meaning, absence }
}

const ESTIMATED: Option<&str> = Some("estimated if absent");

const KEYS: [Key; 10] = [
    key("architecture", "\"Ada\"", "marketing name of the architecture", None),
    key("compute_capability", "\"8.9\"", "CUDA compute capability", None),
    key("memory.nominal_mib", "24576", "advertised memory in MiB", None),
    key(
        "names",
        "[\"NVIDIA GeForce RTX 4090\"]",
        "whole product names that nvidia-smi prints",
        Some("without names and pci_ids the profile matches no GPU"),
    ),
    key("memory.nvml_total_mib", "[24564]", "totals in MiB that nvidia-smi prints", Some("nominal_mib if absent")),
    key("memory.bandwidth_gb_s", "1008.0", "peak bandwidth in GB/s (10^9 bytes per second)", ESTIMATED),
    key("compute.sm_count", "128", "number of streaming multiprocessors", ESTIMATED),
    key("compute.boost_mhz", "2520.0", "boost clock in MHz", ESTIMATED),
    key(
        "peaks.fp32",
        "{ tflops = 82.6, basis = \"published\", source = \"data-sheet\" }",
        "peak of the ordinary units in 10^12 operations per second",
        ESTIMATED,
    ),
    key(
        "peaks.bf16",
        "{ tflops = 165.2, basis = \"published\", source = \"data-sheet\" }",
        "dense peak of the tensor cores, as are tf32 and fp16",
        ESTIMATED,
    ),
];

/// Lists the required keys that the table of a profile lacks, then the optional ones, each with its meaning and unit; `None`
/// if it lacks no required key.
pub(super) fn missing(table: &DeTable<'_>) -> Option<String> {
    let absent = KEYS.iter().filter(|key| !has(table, key.path));
    let (required, optional): (Vec<&Key>, Vec<&Key>) = absent.partition(|key| key.absence.is_none());
    let count = match required.len() {
        0 => return None,
        1 => "1 key".to_owned(),
        count => format!("{count} keys"),
    };
    let lines = |keys: &[&Key]| keys.iter().map(|key| describe(key)).collect::<String>();
    let optional = if optional.is_empty() { String::new() } else { format!("\noptional:{}", lines(&optional)) };
    Some(format!("{count} missing:{}{optional}", lines(&required)))
}

fn describe(key: &Key) -> String {
    let Key { path, example, meaning, absence } = key;
    let absence = absence.map_or_else(String::new, |absence| format!("; {absence}"));
    format!("\n  {path}: {meaning}, such as {example}{absence}")
}

/// The required keys with examples, which let the other keys of a profile be checked.
pub(super) fn examples() -> DeTable<'static> {
    static TEXT: OnceLock<String> = OnceLock::new();
    let line = |key: &Key| format!("{} = {}\n", key.path, key.example);
    let text = TEXT.get_or_init(|| KEYS.iter().filter(|key| key.absence.is_none()).map(line).collect());
    DeTable::parse(text).expect("BUG: the examples are no TOML").into_inner()
}

fn has(table: &DeTable<'_>, path: &str) -> bool {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    table.get(first).is_some_and(|value| match (rest, value.get_ref().as_table()) {
        (None, _) => true,
        (Some(rest), Some(table)) => has(table, rest),
        (Some(_), None) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::KEYS;
    use crate::profile::ProfileTable;

    #[test]
    fn the_examples_are_figures_of_a_shipped_profile() {
        let profile = ProfileTable::builtin_profile("rtx4090").expect("shipped");
        let table = toml::Table::try_from(profile).expect("a profile is TOML");
        for key in &KEYS {
            let whole = toml::Value::Table(table.clone());
            let value = key.path.split('.').try_fold(&whole, |value, name| value.get(name)).cloned();
            let example: toml::Table = format!("it = {}", key.example).parse().expect("TOML");
            let (value, example) = (value.expect(key.path), &example["it"]);
            let peak = |value: &toml::Value| value.get("tflops").cloned();
            assert!(value == *example || (peak(&value).is_some() && peak(&value) == peak(example)), "{}", key.path);
        }
    }
}
