//! A profile as a table of `gpu-tuned.toml`, with a comment beside each figure that the driver does not report.

use std::collections::BTreeMap;

use gpu_tuned_core::profile::{DetectedProfile, Profile};
use toml::{Table, Value};

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

pub(super) fn print(DetectedProfile { profile, notes }: &DetectedProfile) -> String {
    let all = Table::try_from(profile).expect("BUG: a profile is TOML");
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
