//! Locks: written values read back, and a merge loses nothing that still applies.

use std::collections::BTreeMap;

use gpu_tuned_core::measured::{Measured, MeasuredBatch};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_project::lock::{Lock, LockedWorkload, Merged, merged};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use toml::{Table, Value};

use crate::strategies::is_in;
use crate::strategies::locks::{entries, locks, names};
use crate::strategies::mutated::{mutated, mutations};

fn source(text: &str) -> Source<'_> {
    Source { file: Lock::NAME, text }
}

fn parse(text: &str) -> Result<Lock, Vec<FileError>> {
    Lock::parse(source(text))
}

fn merge(text: &str, name: &str, entry: &LockedWorkload) -> Merged {
    merged(Some(source(text)), name, entry).expect("both are valid")
}

fn raw(text: &str) -> Table {
    text.parse().expect("it is TOML")
}

/// The facts by their paths.
fn facts(text: &str) -> BTreeMap<Vec<String>, Value> {
    fn collect(path: &[String], table: Table, found: &mut BTreeMap<Vec<String>, Value>) {
        for (key, value) in table {
            let path = [path, &[key]].concat();
            match value {
                Value::Table(table) => collect(&path, table, found),
                fact => drop(found.insert(path, fact)),
            }
        }
    }
    let mut found = BTreeMap::new();
    collect(&[], raw(text), &mut found);
    found
}

/// The file with facts that this release does not know.
fn extended(text: &str, places: &[Index]) -> String {
    let mut root = raw(text);
    for place in places {
        let mut choice = place.index(usize::MAX);
        let mut table = &mut root;
        loop {
            let below: Vec<String> =
                table.iter().filter(|(_, it)| it.is_table()).map(|(name, _)| name.clone()).collect();
            let Some(name) = below.get(choice % (below.len() + 1)) else { break };
            choice /= below.len() + 1;
            table = table[name].as_table_mut().expect("it is one");
        }
        // Where there are no facts, names are of workloads, devices, modes or batches.
        if table.values().any(|value| !value.is_table()) {
            let list = vec![Value::Float(1.5), Value::String("a\n\u{1}\"".to_owned()), Value::Table(Table::new())];
            let inner =
                Table::from_iter([("list".to_owned(), Value::Array(list)), ("7".to_owned(), Value::Integer(-12_345))]);
            table.insert("zz newer".to_owned(), Value::Table(inner));
        }
    }
    format!("{root}\n{}\n", Lock::END)
}

fn is_other_model(old: &LockedWorkload, new: &LockedWorkload) -> bool {
    old.described != new.described
        || old.measured.shape != new.measured.shape
        || old.measured.parameters != new.measured.parameters
}

const OF_THE_WORKLOAD: [&str; 5] = ["parameters", "shape", "host_ms_per_sample", "described", "goal"];

/// Returns true if a merge of `entry` may drop a fact: it is replaced, or reported as dropped.
fn may_go(
    path: &[String],
    name: &str,
    old: Option<&LockedWorkload>,
    entry: &LockedWorkload,
    dropped: &[String],
) -> bool {
    let path: Vec<_> = path.iter().map(String::as_str).collect();
    let is_reported = (0..=path.len()).any(|length| {
        let prefix = format!("{}: ", path[..length].join("."));
        dropped.iter().any(|table| table.starts_with(&prefix))
    });
    let is_replaced = match path.strip_prefix(&["workload", name]) {
        None | Some([]) => false,
        Some(["on", device, rest @ ..]) => entry.measured.on.get(*device).is_some_and(|on| match rest {
            ["mode", mode, ..] => mode.parse().is_ok_and(|mode| on.mode.contains_key(&mode)),
            [fact] => *fact != "zz newer",
            _ => false,
        }),
        Some([fact, ..]) => OF_THE_WORKLOAD.contains(fact),
    };
    let is_of_an_old_model =
        path.starts_with(&["workload", name, "on"]) && old.is_some_and(|old| is_other_model(old, entry));
    is_replaced || is_reported || is_of_an_old_model
}

/// Returns true if a micro-batch has all figures of another. It may have more: those of an earlier measurement, where a later one
/// was interrupted.
fn has_all(found: &MeasuredBatch, tried: &MeasuredBatch) -> bool {
    let both = MeasuredBatch {
        reserved_bytes: tried.reserved_bytes.or(found.reserved_bytes),
        reserved_accumulating_bytes: tried.reserved_accumulating_bytes.or(found.reserved_accumulating_bytes),
        in_use_bytes: tried.in_use_bytes.or(found.in_use_bytes),
        micro_step_ms: tried.micro_step_ms.or(found.micro_step_ms),
        optimizer_ms: tried.optimizer_ms.or(found.optimizer_ms),
        spread: tried.spread.or(found.spread),
    };
    *found == both
}

/// Checks all properties of a merge.
fn holds(before: &str, name: &str, entry: &LockedWorkload, merged: &Merged) -> Result<(), TestCaseError> {
    let Merged { text, dropped } = merged;
    let (old, new) = (parse(before).expect("it is valid"), parse(text).expect("it was just written"));
    let old = old.workload.get(name);
    let (now, facts_now) = (&new.workload[name], facts(text));
    prop_assert_eq!((&now.described, &now.goal), (&entry.described, &entry.goal));
    for (device, on) in &entry.measured.on {
        let found = &now.measured.on[device];
        prop_assert_eq!((&found.burn, &found.driver, found.memory_bytes), (&on.burn, &on.driver, on.memory_bytes));
        for (mode, figures) in &on.mode {
            let found = &found.mode[mode];
            // An interrupted measurement adds to earlier ones.
            prop_assert!(figures.is_partial || found == figures, "{:?} in place of {:?}", found, figures);
            prop_assert_eq!(found.method, figures.method);
            let has = |(batch, tried)| found.batch.get(batch).is_some_and(|found| has_all(found, tried));
            prop_assert!(figures.batch.iter().all(has), "{found:?}");
        }
    }
    for (path, value) in facts(before) {
        let survives = facts_now.get(&path) == Some(&value);
        prop_assert!(survives || may_go(&path, name, old, entry, dropped), "{path:?} is lost; {dropped:?}");
    }
    prop_assert!(dropped.is_empty() || old.is_some());
    let again = merge(text, name, entry);
    prop_assert_eq!((&again.text, again.dropped), (text, Vec::new()));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_reads_back(lock in locks()) {
        let text = lock.to_toml();
        prop_assert_eq!(parse(&text), Ok(lock.clone()));
        prop_assert_eq!(parse(&text).expect("it is valid").to_toml(), text);
    }

    #[test]
    fn merging_loses_nothing_that_holds(
        lock in locks(), places in vec(any::<Index>(), 0..6), name in names(), entry in entries(),
    ) {
        let before = extended(&lock.to_toml(), &places);
        holds(&before, &name, &entry, &merge(&before, &name, &entry))?;
        // The same model, measured once more: nothing at all is dropped beside what was measured with another Burn.
        if let Some(old) = lock.workload.get(&name) {
            let again = LockedWorkload { described: old.described.clone(), ..entry.clone() };
            let measured = Measured { on: entry.measured.on, ..old.measured.clone() };
            let again = LockedWorkload { measured, ..again };
            let text = lock.to_toml();
            let merged = merge(&text, &name, &again);
            prop_assert!(merged.dropped.iter().all(|table| table.contains("releases of Burn")), "{:?}", merged.dropped);
            holds(&text, &name, &again, &merged)?;
        }
    }

    #[test]
    fn the_order_of_two_writers_does_not_matter(lock in locks(), one in entries(), other in entries()) {
        let text = lock.to_toml();
        let in_order = merge(&merge(&text, "one", &one).text, "other", &other).text;
        prop_assert_eq!(&in_order, &merge(&merge(&text, "other", &other).text, "one", &one).text);
        let found = parse(&in_order).expect("it was just written");
        prop_assert_eq!((&found.workload["one"], &found.workload["other"]), (&one, &other));
    }

    #[test]
    fn a_lock_with_slips_is_read_or_refused_with_places(lock in locks(), slips in mutations(), entry in entries()) {
        let text = mutated(&lock.to_toml(), slips);
        match parse(&text) {
            Err(mistakes) => {
                prop_assert!(!mistakes.is_empty());
                for mistake in &mistakes {
                    prop_assert!(mistake.file == Lock::NAME && is_in(mistake, &text), "{mistake}");
                }
                prop_assert_eq!(merged(Some(source(&text)), "digits", &entry), Err(mistakes));
            }
            Ok(read) => {
                // A slip may have made a figure of more digits than are kept.
                let rounded = read.to_toml();
                prop_assert_eq!(parse(&rounded).map(|lock| lock.to_toml()), Ok(rounded));
                holds(&text, "digits", &entry, &merge(&text, "digits", &entry))?;
            }
        }
    }
}

#[test]
fn the_locks_of_this_repository_are_read() {
    for path in [
        "cli/tests/fixtures/measured",
        "cli/tests/fixtures/stale",
        "tests/guides",
        "tests/hardware/results/h100-sxm5-80gb",
        "tests/hardware/results/h200",
    ] {
        let path = format!("{}/../{path}/{}", env!("CARGO_MANIFEST_DIR"), Lock::NAME);
        let text = std::fs::read_to_string(&path).expect("it is there");
        assert!(parse(&text).is_ok_and(|lock| !lock.is_empty()), "{path}");
    }
}

#[test]
fn the_documented_file_is_one() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/lock.md")).expect("it is there");
    let (_, rest) = page.split_once("```toml\n").expect("there is one");
    let (shown, _) = rest.split_once("```").expect("it ends");
    let bare = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    };
    assert_eq!(bare(&parse(shown).expect("it is valid").to_toml()), bare(shown));
}

#[test]
fn figures_of_memory_are_replaced_together() {
    let text = |memory: &str| {
        let device =
            "burn = \"0.22.1\"\ndevice = \"CPU\"\nkind = \"cpu\"\nmemory_bytes = 16_000_000_000\nsm_count = 0\n";
        let mode = format!("method = \"executed\"\npartial = true\nbatch.2 = {{ micro_step_ms = 900.0, {memory} }}\n");
        let workload = "[workload.lm]\nparameters = 7\nshape = \"00ff\"\n";
        let tables = format!("[workload.lm.on.cpu]\n{device}[workload.lm.on.cpu.mode.f32]\n{mode}");
        format!("format = 2\n{workload}{tables}{}\n", Lock::END)
    };
    let new = parse(&text("in_use_bytes = 500")).expect("it is valid").workload.remove("lm").expect("it is there");
    let merged = merge(&text("optimizer_ms = 1.0, reserved_bytes = 400"), "lm", &new).text;
    let kept = merged.contains("optimizer_ms") && merged.contains("in_use_bytes = 500");
    assert!(kept && !merged.contains("reserved_bytes"), "{merged}");
}
