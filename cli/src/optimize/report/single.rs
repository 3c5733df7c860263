//! One target: the changes with their reasons.

use gpu_tuned_core::Provenance;
use gpu_tuned_optimize::{Change, State, Tuned};

use super::{ratio, speed};
use crate::output::{BAD, FAINT, GOOD, MARKED, PLAIN, Table, or_dash, styled, wrapped};

pub(super) fn table(tuned: &Tuned) -> String {
    let mut table = Table::new(2, ["key", ">before", ">after"]);
    for change in &tuned.changes {
        let style = match change.state {
            State::Same | State::Implied => FAINT,
            State::Changed | State::Added => GOOD,
            State::ByHand => MARKED,
        };
        let cells = [change.key.clone(), or_dash(change.before.as_ref()), change.after.clone()];
        table.row(style, cells, reason(change));
    }
    let changes = if tuned.plan.is_some() { format!("{}\n", table.print()) } else { String::new() };
    format!("{changes}{}", expected(tuned))
}

fn reason(change: &Change) -> String {
    let effect = match change.state {
        State::ByHand => styled(MARKED, "by hand: the config has no such key; "),
        State::Added => styled(GOOD, "added; "),
        State::Implied => "implied by the other keys; ".to_owned(),
        State::Same | State::Changed => String::new(),
    };
    format!("{effect}{} {}", change.why, styled(FAINT, format!("({})", change.provenance)))
}

/// Memory and throughput before and after.
fn expected(tuned: &Tuned) -> String {
    let (before, after) = (&tuned.before, &tuned.after);
    let columns = ["expected", ">before", ">after"];
    let mut table = Table::new(2, columns);
    let label = |it: Option<Provenance>| it.map_or_else(String::new, |it| styled(FAINT, format!("({it})")));
    let available = after.available_bytes.or(before.available_bytes);
    let available = available.map_or_else(String::new, |bytes| format!("of {bytes} "));
    let provenance = label(after.memory_provenance.max(before.memory_provenance));
    let cells = ["memory".to_owned(), or_dash(before.memory_bytes), or_dash(after.memory_bytes)];
    table.row(PLAIN, cells, format!("{available}{provenance}"));
    let speedup = after.ratio_to(before);
    let times = speedup.map_or_else(String::new, |(times, _)| format!("{} ", ratio(times)));
    let provenance = label(speedup.map(|(_, provenance)| provenance).or(after.samples_per_s_provenance));
    let cells = ["samples/s".to_owned(), speed(before), speed(after)];
    table.row(PLAIN, cells, format!("{times}{provenance}"));
    let problem = |(when, problem): (&str, &Option<String>)| {
        Some(format!("  {when}: {}\n", styled(BAD, wrapped(problem.as_ref()?, when.len() + 4))))
    };
    let problems = [("before", &before.problem), ("after", &after.problem)].into_iter().filter_map(problem);
    table.print() + &problems.collect::<String>()
}
