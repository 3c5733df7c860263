//! Keys of a user's profile.

use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

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

/// Figures of a base that a user's figure replaces together with its own: (figure, table and keys that follow from it).
const DEPENDENTS: [(&str, &str, &[&str]); 3] = [
    ("memory.nominal_mib", "memory", &["nvml_total_mib", "cuda_total_mib"]),
    ("compute.sm_count", "compute", &["cuda_cores"]),
    ("compute.cuda_cores", "compute", &["sm_count"]),
];

/// Removes figures of a base that follow from a figure which the user's table changes.
pub(super) fn drop_dependents(base: &mut DeTable<'_>, own: &DeTable<'_>) {
    let figure = |table: &DeTable<'_>, path| Some(find(table, path)?.as_integer()?.to_string());
    for (path, table, keys) in DEPENDENTS {
        let is_changed = find(own, path).is_some() && figure(base, path) != figure(own, path);
        if let Some(DeValue::Table(table)) = base.get_mut(table).filter(|_| is_changed).map(Spanned::get_mut) {
            for key in keys {
                table.remove(*key);
            }
        }
    }
}

/// Positions of the values in a table, by key with dots between tables.
pub(super) fn places(table: &DeTable<'_>) -> BTreeMap<String, Range<usize>> {
    let mut places = BTreeMap::new();
    for (key, value) in table {
        let key = key.get_ref();
        if let Some(inner) = value.get_ref().as_table() {
            places.extend(self::places(inner).into_iter().map(|(rest, place)| (format!("{key}.{rest}"), place)));
        }
        places.insert(key.to_string(), value.span());
    }
    places
}

fn has(table: &DeTable<'_>, path: &str) -> bool {
    find(table, path).is_some()
}

fn find<'t, 'i>(table: &'t DeTable<'i>, path: &str) -> Option<&'t DeValue<'i>> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let value = table.get(first)?.get_ref();
    rest.map_or(Some(value), |rest| find(value.as_table()?, rest))
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
