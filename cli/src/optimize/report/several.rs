//! Several targets: a column for each, and the reasons below.

use gpu_tuned_core::grouped;
use gpu_tuned_optimize::{Change, ChangeState, Gain, Tuned};

use super::remarks::grouped_by_text;
use super::{OnTarget, ratio, speed};
use crate::output::{BAD, BOLD, FAINT, PLAIN, Table, or_dash, styled, wrapped};

pub(super) fn table(targets: &[OnTarget]) -> String {
    let all: Vec<&Tuned> = targets.iter().map(|one| &one.tuned).collect();
    let mut table = columns(all.len() + 1);
    let mut row = |style, name: &str, now: String, cells: Vec<String>| {
        table.row(style, [vec![name.to_owned(), now], cells].concat(), "");
    };
    let each = |cell: &dyn Fn(&Tuned) -> String| all.iter().map(|tuned| cell(tuned)).collect::<Vec<_>>();
    row(BOLD, "key", "now".to_owned(), each(&|tuned| tuned.target.clone()));
    let keys = keys(&all);
    for key in &keys {
        let now = all.iter().find_map(|tuned| change(tuned, key)?.before.clone());
        row(PLAIN, key, or_dash(now), each(&|tuned| or_dash(change(tuned, key).map(marked))));
    }
    row(PLAIN, "needed in Burn", String::new(), each(&|tuned| or_dash(tuned.after.memory_bytes)));
    if all.iter().any(|tuned| tuned.pytorch.is_some()) {
        let bytes = |tuned: &Tuned| or_dash(tuned.pytorch.and_then(|pytorch| pytorch.after_bytes));
        row(PLAIN, "needed in PyTorch", String::new(), each(&bytes));
    }
    row(PLAIN, "available", String::new(), each(&|tuned| or_dash(tuned.after.available_bytes)));
    row(PLAIN, "samples/s now", String::new(), each(&|tuned| speed(&tuned.before)));
    row(PLAIN, "samples/s", String::new(), each(&|tuned| speed(&tuned.after)));
    row(PLAIN, "ratio", String::new(), each(&|tuned| or_dash(tuned.speedup.map(ratio))));
    row(PLAIN, "figures", String::new(), each(&|tuned| or_dash(tuned.after.samples_per_s_provenance)));
    let has_by_hand = all.iter().flat_map(|tuned| &tuned.changes).any(|change| change.state == ChangeState::ByHand);
    let legend = if has_by_hand { styled(FAINT, "  * by hand: the config has no such key\n") } else { String::new() };
    let problem = |(target, when, problem): (&str, &str, &Option<String>)| {
        Some(format!("  {target} ({when}): {}\n", styled(BAD, problem.as_ref()?)))
    };
    let problems = all.iter().flat_map(|tuned| {
        let target = tuned.target.as_str();
        [(target, "now", &tuned.before.problem), (target, "planned", &tuned.after.problem)]
    });
    let problems: String = problems.filter_map(problem).collect();
    format!("{}{legend}{problems}{}\n{}", table.print(), suggestions(&all), reasons(&keys, &all))
}

/// A table with one column of names and several of figures.
fn columns(figures: usize) -> Table {
    Table::new(2, core::iter::once("").chain(core::iter::repeat_n(">", figures)))
}

/// Keys that a plan of any target sets, in the order of their first occurrence.
fn keys<'t>(all: &[&'t Tuned]) -> Vec<&'t str> {
    let mut keys = Vec::new();
    for change in all.iter().flat_map(|tuned| &tuned.changes) {
        if !keys.contains(&change.key.as_str()) {
            keys.push(change.key.as_str());
        }
    }
    keys
}

fn change<'t>(tuned: &'t Tuned, key: &str) -> Option<&'t Change> {
    tuned.changes.iter().find(|change| change.key == key)
}

fn marked(change: &Change) -> String {
    if change.state == ChangeState::ByHand { format!("{} *", change.after) } else { change.after.clone() }
}

/// Faster alternatives for each target.
fn suggestions(all: &[&Tuned]) -> String {
    let (mut table, mut rows) = (columns(all.len()), 0);
    let mut row = |style, name: &str, cell: &dyn Fn(&Tuned) -> Option<String>| {
        let cells: Vec<_> = all.iter().map(|tuned| cell(tuned)).collect();
        if cells.iter().any(Option::is_some) {
            rows += 1;
            table.row(style, [vec![name.to_owned()], cells.into_iter().map(or_dash).collect()].concat(), "");
        }
    };
    row(BOLD, "faster alternatives", &|tuned| Some(tuned.target.clone()));
    row(PLAIN, "global batch that fills it", &larger_batch);
    let times = |gain: Gain| format!("{:.2}x", gain.samples_per_s_ratio);
    row(PLAIN, "  samples/s with it", &|tuned| tuned.suggestions.larger_batch.map(times));
    row(PLAIN, "samples/s in mixed_bf16", &|tuned| tuned.suggestions.mixed_bf16.map(times));
    if rows == 1 {
        return String::new();
    }
    let remark = "these change the results of the run, so that nothing is changed";
    format!("\n{}{}  {}\n", table.print(), bound(all), styled(FAINT, wrapped(remark, 2)))
}

/// The step that fills a target, with a mark where the data set is smaller.
fn larger_batch(tuned: &Tuned) -> Option<String> {
    let samples = tuned.suggestions.larger_batch.map(|gain| grouped(gain.global_batch));
    if tuned.suggestions.data_set.is_none() { samples } else { Some(format!("{} *", or_dash(samples))) }
}

/// Meaning of that mark.
fn bound(all: &[&Tuned]) -> String {
    let Some(set) = all.iter().find_map(|tuned| tuned.suggestions.data_set.as_ref()) else { return String::new() };
    let remark = format!("* limited by the data set, which has {} samples (`{}`)", grouped(set.samples), set.key);
    format!("  {}\n", styled(FAINT, wrapped(&remark, 4)))
}

/// The reasons for each key with their targets.
fn reasons(keys: &[&str], all: &[&Tuned]) -> String {
    let mut lines = String::new();
    for key in keys {
        let by_reason = grouped_by_text(all.iter().filter_map(|tuned| {
            let change = change(tuned, key)?;
            let reason = format!("{} ({})", without_figures(&change.why), change.provenance);
            Some((Some(tuned.target.as_str()), reason))
        }));
        lines += &format!("  {}\n", styled(BOLD, key));
        for (reason, targets) in by_reason {
            let of = if targets.len() == all.len() { String::new() } else { format!("{}: ", targets.join(", ")) };
            lines += &format!("    {}\n", wrapped(&format!("{of}{reason}"), 4));
        }
    }
    lines
}

/// A reason without throughput, which differs between targets and is in the table.
fn without_figures(why: &str) -> String {
    let mut left = why.to_owned();
    while let Some(end) = left.find(" samples/s") {
        let (Some(start), Some(close)) = (left[..end].rfind(" ("), left[end..].find(')')) else { break };
        left.replace_range(start..=end + close, "");
    }
    left
}
