//! One target: what changes, with the reason behind each value.

use super::super::changes::{Change, State};
use super::expectation::Expectation;
use super::{OnTarget, Report, words};
use crate::table::{Align, BAD, FAINT, GOOD, MARKED, PLAIN, Table, styled};
use crate::wrap::wrapped;

pub(super) fn table(report: &Report<'_>, one: &OnTarget) -> String {
    let mut table = Table::new(2, [("key", Align::Left), ("before", Align::Right), ("after", Align::Right)]);
    for change in one.changes.iter().flat_map(|changes| &changes.all) {
        let style = words::style(change.state);
        let cells = [change.key.clone(), change.before.clone().unwrap_or_else(|| "-".to_owned()), change.after.clone()];
        table.row(style, cells, why(change));
    }
    let changes = if one.changes.is_some() { format!("{}\n", table.print()) } else { String::new() };
    format!("{changes}{}", expected(report, one))
}

fn why(change: &Change) -> String {
    let by_hand = match change.state {
        State::ByHand => styled(MARKED, "by hand: the config has no such key; "),
        State::Added => styled(GOOD, "added; "),
        State::Implied => "follows from the other keys; ".to_owned(),
        State::Same | State::Changed => String::new(),
    };
    format!("{by_hand}{} {}", change.why, styled(FAINT, format!("({})", change.provenance)))
}

/// Memory and throughput before and after.
fn expected(report: &Report<'_>, one: &OnTarget) -> String {
    let (before, after) = report.expected(one);
    let columns = [("expected", Align::Left), ("before", Align::Right), ("after", Align::Right)];
    let mut table = Table::new(2, columns);
    let memory =
        |expected: &Expectation| expected.memory_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    let of = after.available_bytes.or(before.available_bytes).map_or_else(String::new, |bytes| format!("of {bytes} "));
    let label = |provenance: Option<gpu_tuned_core::Provenance>| {
        provenance.map_or_else(String::new, |it| styled(FAINT, format!("({it})")))
    };
    let provenance = after.memory_provenance.max(before.memory_provenance);
    table.row(PLAIN, ["memory".to_owned(), memory(&before), memory(&after)], format!("{of}{}", label(provenance)));
    let ratio = after.ratio_to(&before);
    let times = ratio.map_or_else(String::new, |(ratio, _)| format!("{} ", words::times(ratio)));
    let provenance = ratio.map(|(_, provenance)| provenance).or(after.samples_per_s_provenance);
    let cells = ["samples/s".to_owned(), words::speed(&before), words::speed(&after)];
    table.row(PLAIN, cells, format!("{times}{}", label(provenance)));
    let problems = [("before", &before), ("after", &after)].map(|(when, expected)| {
        expected
            .problem
            .as_ref()
            .map_or_else(String::new, |why| format!("  {when}: {}\n", styled(BAD, wrapped(why, when.len() + 4))))
    });
    format!("{}{}", table.print(), problems.concat())
}
