//! Several targets: a column for each, and the reasons below.

use std::collections::BTreeMap;

use gpu_tuned_core::grouped;

use super::super::changes::{Change, State};
use super::super::config::DataSet;
use super::super::more::{Gain, More};
use super::{OnTarget, Report, words};
use crate::table::{Align, BAD, BOLD, FAINT, PLAIN, Table, styled};
use crate::wrap::wrapped;

pub(super) fn table(report: &Report<'_>, all: &[OnTarget]) -> String {
    let columns: Vec<_> =
        core::iter::once(("", Align::Left)).chain((0..=all.len()).map(|_| ("", Align::Right))).collect();
    let mut table = Table::new(2, columns);
    let names = all.iter().map(|one| one.target.clone());
    let heading: Vec<_> = ["key".to_owned(), "now".to_owned()].into_iter().chain(names).collect();
    table.row(BOLD, heading, "");
    let keys = keys(all);
    for key in &keys {
        let of = |one: &OnTarget| {
            one.changes.as_ref().and_then(|changes| changes.all.iter().find(|change| change.key == *key)).cloned()
        };
        let now = all.iter().filter_map(of).find_map(|change| change.before).unwrap_or_else(|| "-".to_owned());
        let cells = all.iter().map(|one| of(one).map_or_else(|| "-".to_owned(), |change| marked(&change)));
        let row: Vec<_> = [key.clone(), now].into_iter().chain(cells).collect();
        table.row(PLAIN, row, "");
    }
    let expected: Vec<_> = all.iter().map(|one| report.expected(one)).collect();
    let mut line = |name: &str, cells: Vec<String>| {
        let row: Vec<_> = [name.to_owned(), String::new()].into_iter().chain(cells).collect();
        table.row(PLAIN, row, "");
    };
    line(
        "memory",
        expected
            .iter()
            .map(|(_, after)| after.memory_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()))
            .collect(),
    );
    line(
        "of",
        expected
            .iter()
            .map(|(_, after)| after.available_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()))
            .collect(),
    );
    line("samples/s now", expected.iter().map(|(before, _)| words::speed(before)).collect());
    line("samples/s", expected.iter().map(|(_, after)| words::speed(after)).collect());
    line(
        "ratio",
        expected
            .iter()
            .map(|(before, after)| {
                after.ratio_to(before).map_or_else(|| "-".to_owned(), |(ratio, _)| words::times(ratio))
            })
            .collect(),
    );
    line(
        "figures",
        expected
            .iter()
            .map(|(_, after)| after.samples_per_s_provenance.map_or_else(|| "-".to_owned(), |it| it.to_string()))
            .collect(),
    );
    let legend = if all.iter().any(has_by_hand) {
        styled(FAINT, "  * by hand: the config has no such key\n")
    } else {
        String::new()
    };
    let problems: String = all
        .iter()
        .zip(&expected)
        .flat_map(|(one, (before, after))| {
            [("now", before), ("planned", after)].map(|(when, expected)| {
                expected.problem.as_ref().map(|why| format!("  {} ({when}): {}\n", one.target, styled(BAD, why)))
            })
        })
        .flatten()
        .collect();
    format!("{}{legend}{problems}{}\n{}", table.print(), more(all), reasons(&keys, all))
}

/// Every key that any target's plan has something to say of, in their order.
fn keys(all: &[OnTarget]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for change in all.iter().filter_map(|one| one.changes.as_ref()).flat_map(|changes| &changes.all) {
        if !keys.contains(&change.key) {
            keys.push(change.key.clone());
        }
    }
    keys
}

fn marked(change: &Change) -> String {
    if change.state == State::ByHand { format!("{} *", change.after) } else { change.after.clone() }
}

fn has_by_hand(one: &OnTarget) -> bool {
    one.changes.as_ref().is_some_and(|changes| changes.all.iter().any(|change| change.state == State::ByHand))
}

/// A reason without the speed, which differs between targets and is in the table.
fn without_figures(why: &str) -> String {
    let mut left = why.to_owned();
    while let Some(end) = left.find(" samples/s") {
        let (Some(start), Some(close)) = (left[..end].rfind(" ("), left[end..].find(')')) else { break };
        left.replace_range(start..=end + close, "");
    }
    left
}

/// What would bring more, and is not for a planner to change; and shares of the time in which each target computes, with
/// larger models, where one of them waits more than it works.
fn more(all: &[OnTarget]) -> String {
    let columns: Vec<_> = core::iter::once(("", Align::Left)).chain(all.iter().map(|_| ("", Align::Right))).collect();
    let mut table = Table::new(2, columns);
    let mut rows = 0;
    let mut row = |style, name: &str, cells: Vec<Option<String>>| {
        if cells.iter().any(Option::is_some) {
            rows += 1;
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned())).collect();
            table.row(style, [vec![name.to_owned()], cells].concat(), "");
        }
    };
    let each = |cell: &dyn Fn(&OnTarget) -> Option<String>| all.iter().map(cell).collect::<Vec<_>>();
    row(BOLD, "would bring more", each(&|one| Some(one.target.clone())));
    row(PLAIN, "global batch that fills it", each(&larger_batch));
    let ratio = |gain: Gain| format!("{:.2}x", gain.samples_per_s_ratio);
    row(PLAIN, "  samples/s with it", each(&|one| one.planned.more.larger_batch.map(ratio)));
    row(PLAIN, "samples/s in mixed_bf16", each(&|one| one.planned.more.mixed_bf16.map(ratio)));
    let small: Vec<_> = all.iter().filter_map(|one| one.too_small.as_ref()).collect();
    if !small.is_empty() {
        row(PLAIN, "time spent computing", each(&|one| Some(words::share(one.planned.filling?.utilization))));
    }
    let mut names: Vec<&str> = Vec::new();
    for larger in small.iter().flat_map(|small| &small.larger) {
        if !names.contains(&larger.change.as_str()) {
            names.push(&larger.change);
        }
    }
    for name in names {
        let of = |one: &OnTarget| {
            let larger = one.too_small.as_ref()?.larger.iter().find(|larger| larger.change == name)?;
            Some(words::share(larger.utilization))
        };
        row(PLAIN, &format!("  {name}"), each(&of));
    }
    if rows == 1 {
        return String::new();
    }
    let waits = "where it does not compute, a device waits for launches: the model is too small to fill it; ";
    let waits = if small.is_empty() { "" } else { waits };
    let said = format!("{waits}all of this changes what the run means, and is left as it is");
    format!("\n{}{}  {}\n", table.print(), bound(all), styled(FAINT, wrapped(&said, 2)))
}

/// The step that fills a target, marked where the data set has fewer samples.
fn larger_batch(one: &OnTarget) -> Option<String> {
    let More { larger_batch, data_set, .. } = &one.planned.more;
    let samples = larger_batch.map(|gain| grouped(gain.global_batch));
    if data_set.is_none() { samples } else { Some(format!("{} *", samples.as_deref().unwrap_or("-"))) }
}

/// What that mark means.
fn bound(all: &[OnTarget]) -> String {
    let set = all.iter().find_map(|one| one.planned.more.data_set.as_ref());
    let line = |set: &DataSet| {
        let said = format!("* bounded by the data set, which has {} samples (`{}`)", grouped(set.samples), set.key);
        format!("  {}\n", styled(FAINT, wrapped(&said, 4)))
    };
    set.map_or_else(String::new, line)
}

/// The reasons for each key, each with the targets that it is of.
fn reasons(keys: &[String], all: &[OnTarget]) -> String {
    let mut lines = Vec::new();
    for key in keys {
        let mut by_reason: BTreeMap<usize, (String, Vec<&str>)> = BTreeMap::new();
        for (index, one) in all.iter().enumerate() {
            let change = one.changes.as_ref().and_then(|changes| changes.all.iter().find(|change| change.key == *key));
            let Some(change) = change else { continue };
            let reason = format!("{} ({})", without_figures(&change.why), change.provenance);
            match by_reason.values_mut().find(|(known, _)| *known == reason) {
                Some((_, targets)) => targets.push(&one.target),
                None => drop(by_reason.insert(index, (reason, vec![&one.target]))),
            }
        }
        lines.push(format!("  {}\n", styled(BOLD, key)));
        for (reason, targets) in by_reason.values() {
            let of = if targets.len() == all.len() { String::new() } else { format!("{}: ", targets.join(", ")) };
            lines.push(format!("    {}\n", wrapped(&format!("{of}{reason}"), 4)));
        }
    }
    lines.concat()
}
