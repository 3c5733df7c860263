//! Edits of each config for GPUs with and without bf16.

use std::collections::BTreeMap;

use gpu_tuned_core::Precision;
use gpu_tuned_optimize::ChangeState;
use similar::TextDiff;

use crate::api::{self, Asked, Edited, Reading};
use crate::assert_all;
use crate::table::{Expected, Table, path};

/// A GPU with bf16 and one without.
const GPUS: [&str; 2] = ["h100-sxm5-80gb", "gtx1080"];

/// The config with its model, where both can be read.
fn read(expected: &Expected) -> Result<Reading, String> {
    let file = path("configs", &expected.file);
    let read = api::read(&file, expected.model.as_deref(), &expected.options).map_err(|error| error.to_string())?;
    match &read.model {
        Ok(_) => Ok(read),
        Err(error) => Err(error.to_string()),
    }
}

fn tune(reading: &Reading, gpu: &str, asked: Asked) -> Result<Edited, String> {
    reading.model.as_ref().map_err(ToString::to_string).and_then(|spec| reading.tune(gpu, spec, asked))
}

#[test]
fn edits_keep_the_step_the_comments_and_the_workers() {
    let (mut checked, mut failures) = (0, Vec::new());
    let table = Table::read();
    for expected in table.configs.iter().filter(|expected| !expected.refuses_model()) {
        let Ok(reading) = read(expected) else { continue };
        for gpu in GPUS {
            let mut check = |name: &str, wanted: &str, found: &str, is_right: bool| {
                checked += 1;
                if !is_right {
                    failures.push([
                        expected.file.clone(),
                        format!("{name}, {gpu}"),
                        wanted.to_owned(),
                        found.to_owned(),
                    ]);
                }
            };
            let edited = match tune(&reading, gpu, Asked::default()) {
                Ok(edited) => edited,
                Err(error) => {
                    check("is edited", "true", &error, false);
                    continue;
                }
            };
            let fits = edited.problem.as_ref().is_none_or(|problem| !problem.starts_with("does not fit"));
            if let (Some(wanted), "gtx1080", true) = (expected.want("gtx1080"), gpu, fits) {
                let found = precision_word(&edited);
                check("precision", &wanted, &found, found == wanted);
            }
            let Some(text) = &edited.after else { continue };
            let global = reading.step.global.to_string();
            let again = reading.again(text, expected.model.as_deref(), &expected.options);
            let found = again.map_or_else(|error| error.to_string(), |again| again.step.global.to_string());
            check("global", &global, &found, found == global);
            let lost = comments(&edited.before).find(|comment| !text.contains(comment)).unwrap_or_default();
            check("comments stay", "", lost, lost.is_empty());
            let of_workers = |change: &&gpu_tuned_optimize::Change| change.setting == "num_workers";
            let changes = |change: &&gpu_tuned_optimize::Change| {
                [ChangeState::Changed, ChangeState::Added].contains(&change.state)
            };
            let workers = edited.changes.iter().find(of_workers).filter(changes);
            let found = workers.map_or_else(String::new, |change| format!("{:?} to {}", change.before, change.after));
            check("workers stay", "", &found, found.is_empty());
            let added = edited.changes.iter().filter(|change| change.state == ChangeState::Added);
            let unread = added.map(|change| change.key.as_str()).find(|key| !reads(&table, expected, key));
            check("adds only its keys", "", unread.unwrap_or_default(), unread.is_none());
        }
    }
    assert_all("edits", checked, &failures);
}

#[test]
fn bf16_is_requested_in_the_words_of_the_framework() {
    let (mut checked, mut failures) = (0, Vec::new());
    let table = Table::read();
    let asked = Asked { add_keys: false, precision: Some(Precision::MixedBf16) };
    for expected in &table.configs {
        let Some(wanted) = expected.want("bf16") else { continue };
        let reading = read(expected);
        if reading.is_err() && expected.may_refuse_model() {
            continue;
        }
        checked += 1;
        let edited = reading.and_then(|reading| tune(&reading, GPUS[0], asked));
        let found = edited.map_or_else(|error| error, |edited| precision_word(&edited));
        if found != wanted {
            failures.push([expected.file.clone(), "--precision mixed_bf16".to_owned(), wanted, found]);
        }
    }
    assert_all("words for bf16", checked, &failures);
}

/// The word for the precision in the edited file: the one that changes, where several keys are of it.
fn precision_word(edited: &Edited) -> String {
    let mut all: Vec<_> = edited.changes.iter().filter(|change| change.setting == "precision").collect();
    all.sort_by_key(|change| change.state != ChangeState::Changed);
    let word = all.first().map(|change| change.after.trim_matches(['"', '\'']).to_owned());
    word.or_else(|| edited.problem.clone()).unwrap_or_else(|| "no key of the precision".to_owned())
}

/// Comments of TOML and YAML; none in JSON.
fn comments(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.find(" # ").or(line.starts_with('#').then_some(0)).map(|at| line[at..].trim()))
}

/// True if the program reads the key, by the list of its dialect. Nothing is known of a program written by hand.
fn reads(table: &Table, expected: &Expected, key: &str) -> bool {
    let dialect = expected.dialect();
    let name = key.rsplit('.').next().unwrap_or_default();
    ["plain", "burn"].contains(&dialect) || table.add[dialect].iter().any(|known| known == name)
}

#[test]
fn only_keys_that_the_program_reads_are_added() {
    let (mut checked, mut failures) = (0, Vec::new());
    let table = Table::read();
    for expected in &table.configs {
        let Ok(edited) =
            read(expected).and_then(|reading| tune(&reading, GPUS[0], Asked { add_keys: true, precision: None }))
        else {
            continue;
        };
        checked += 1;
        for change in edited.changes.iter().filter(|change| change.state == ChangeState::Added) {
            if !reads(&table, expected, &change.key) {
                let known = table.add[expected.dialect()].join(" ");
                failures.push([expected.file.clone(), "--add adds".to_owned(), known, change.key.clone()]);
            }
        }
    }
    assert_all("added keys", checked, &failures);
}

#[test]
fn diffs_are_those_of_the_snapshots() {
    let mut all: BTreeMap<&str, String> = BTreeMap::new();
    let table = Table::read();
    for expected in &table.configs {
        let text = all.entry(expected.dialect()).or_default();
        let options = &expected.options;
        let world = options.world_size.map_or_else(String::new, |ranks| format!(" --world-size {ranks}"));
        let global = options.global_batch.map_or_else(String::new, |global| format!(" --global-batch {global}"));
        text.push_str(&format!("# {}{world}{global}\n", expected.file));
        match read(expected) {
            Err(error) => text.push_str(&format!("refused: {}\n", without_folder(&error))),
            Ok(reading) => {
                let gpus = if expected.want("gtx1080").is_some() { &GPUS[..] } else { &GPUS[..1] };
                for gpu in gpus {
                    text.push_str(&format!("{gpu}:{}", shown(&tune(&reading, gpu, Asked::default()))));
                }
            }
        }
        text.push('\n');
    }
    for (dialect, text) in all {
        insta::assert_snapshot!(format!("diffs_{dialect}"), text);
    }
}

/// The lines that change, or the reason why there is no plan.
fn shown(edited: &Result<Edited, String>) -> String {
    match edited {
        Err(error) => format!(" refused: {}\n", without_folder(error)),
        Ok(Edited { after: None, problem, .. }) => format!(" {}\n", problem.as_deref().unwrap_or("no plan")),
        Ok(Edited { before, after: Some(after), .. }) => {
            let lines = TextDiff::from_lines(before, after).unified_diff().header("a", "b").to_string();
            let is_change =
                |line: &&str| line.starts_with(['+', '-']) && !line.starts_with("+++") && !line.starts_with("---");
            let lines: Vec<_> = lines.lines().filter(is_change).collect();
            format!("{}\n", if lines.is_empty() { " unchanged".to_owned() } else { format!("\n{}", lines.join("\n")) })
        }
    }
}

fn without_folder(error: &str) -> String {
    error.replace(&*path("configs", "").to_string_lossy(), "")
}
