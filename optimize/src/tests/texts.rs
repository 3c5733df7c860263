//! Short texts of configs, tuned. A snapshot repeats the texts of a file, each with its outcome: the step, warnings and the
//! edited text, or the error.
//!
//! `=== NAME` begins the texts of one behaviour, `--- WORDS` a text. `DIMS` stands for the entries of a small transformer.
//!
//! | word | meaning |
//! |---|---|
//! | `json`, `toml` | format; YAML by default |
//! | `whole` | YAML without the dimensions of a model in front |
//! | `gtx1080` | GPU; an H200 by default |
//! | `samples=64` | samples of a step by the documentation of the ecosystem |
//! | `--add` | options of [`tuned`] |

use gpu_tuned_core::profile::ProfileTable;

use super::{DIMS, MODEL, tuned};
use crate::{ChangeState, Format};

#[test]
fn steps() {
    insta::assert_snapshot!(outcomes(include_str!("texts/steps.txt")));
}

#[test]
fn precisions() {
    insta::assert_snapshot!(outcomes(include_str!("texts/precision.txt")));
}

#[test]
fn edits() {
    insta::assert_snapshot!(outcomes(include_str!("texts/edits.txt")));
}

#[test]
fn refusals() {
    insta::assert_snapshot!(outcomes(include_str!("texts/refusals.txt")));
}

/// Repeats the lines of a file, with the outcome of each text.
fn outcomes(file: &str) -> String {
    let mut shown = String::new();
    let mut lines = file.lines().peekable();
    while let Some(line) = lines.next() {
        shown += &format!("{line}\n");
        let Some(words) = line.strip_prefix("---") else { continue };
        let mut text = String::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with("---") && !line.starts_with("===")) {
            text += &format!("{line}\n");
        }
        let words: Vec<_> = words.split_whitespace().collect();
        shown += &format!("{text}>>>\n{}", outcome(&text, &words));
    }
    shown
}

fn outcome(text: &str, words: &[&str]) -> String {
    let format = match words.first() {
        Some(&"json") => Format::Json,
        Some(&"toml") => Format::Toml,
        _ => Format::Yaml,
    };
    let head = if format == Format::Yaml && !words.contains(&"whole") { MODEL } else { "" };
    let text = format!("{head}{}", text.replace("DIMS", DIMS));
    let gpu = words.iter().find(|word| ProfileTable::builtin().get(word).is_some()).unwrap_or(&"h200");
    let (tuned, step) = match tuned(format, &text, gpu, words) {
        Ok(found) => found,
        Err(error) => return format!("refused: {error}\n"),
    };
    if let Some(samples) = words.iter().find_map(|word| word.strip_prefix("samples=")) {
        assert_eq!(samples, step.global.to_string(), "{text}");
    }
    assert_eq!(step.configured(), step.global, "{text}");
    let mut shown = format!("{} x {} x {} rank(s) = {}\n", step.batch, step.accumulation, step.ranks, step.global);
    tuned.warnings.iter().for_each(|warning| shown += &format!("warning: {warning}\n"));
    for change in tuned.changes.iter().filter(|change| change.state == ChangeState::ByHand) {
        shown += &format!("by hand: {} = {}\n", change.key, change.after);
    }
    if tuned.with_accumulation.is_some() {
        shown += "fits with accumulation\n";
    }
    let tuned = tuned.text.map(|tuned| tuned.strip_prefix(head).expect("the model stays").replace(DIMS, "DIMS"));
    match tuned {
        None => shown + "does not fit\n",
        Some(tuned) if format!("{head}{}", tuned.replace("DIMS", DIMS)) == text => shown + "unchanged\n",
        Some(tuned) => shown + &tuned,
    }
}
