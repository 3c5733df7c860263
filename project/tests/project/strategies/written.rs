//! Files made from the tables of dimensions: each key that there is, with values in and around its range.

use gpu_tuned_core::Goal;
use gpu_tuned_core::dims::{Dim, DimKind, Presence, Schema};
use gpu_tuned_core::workload::{ModelKind, Training};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Numbers where arithmetic goes wrong, and what is no number at all.
pub(crate) const EXTREMES: [&str; 24] = [
    "0",
    "1",
    "-1",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "1e400",
    "-1e400",
    "1e-400",
    "4.9e-324",
    "1.8e308",
    "nan",
    "-nan",
    "inf",
    "-inf",
    "-0.0",
    "0xffffffffffffffff",
    "true",
    "\"\"",
    "[]",
    "{}",
];

fn counts(least: u64, most: u64) -> BoxedStrategy<String> {
    let edges = [least.wrapping_sub(1), least, least + 1, most / 2, most - 1, most, most + 1];
    // Evenly over the orders of magnitude: most models are small.
    let inside = (0.0..=1.0).prop_map(move |share: f64| {
        let orders = (most.max(1) as f64).ln() * share;
        (orders.exp() as u64).clamp(least, most)
    });
    prop_oneof![8 => inside, 1 => select(edges.to_vec())].prop_map(|count| count.to_string()).boxed()
}

fn value(kind: &'static DimKind) -> BoxedStrategy<String> {
    let choice = |names: &'static [(&str, &str)]| prop_oneof![20 => select(names).prop_map(|(name, _)| format!("\"{name}\"")), 1 => Just("\"amadw\"".to_owned())];
    match kind {
        DimKind::Count(range) => counts(*range.start(), *range.end()),
        DimKind::Flag => any::<bool>().prop_map(|flag| flag.to_string()).boxed(),
        DimKind::Number(range) => {
            let (least, most) = (*range.start(), *range.end());
            let inside = (0.0..=1.0).prop_map(move |share: f64| least + (most - least) * share * share * share);
            let edges = [least, most, least - 0.001, most * 1.001].to_vec();
            prop_oneof![8 => inside, 1 => select(edges)].prop_map(|number| format!("{number:?}")).boxed()
        }
        DimKind::Choice(choices) => choice(choices.names).boxed(),
        DimKind::ChoiceList(choices) => list(choice(choices.names), 0..5),
        DimKind::Counts(range) => list(counts(*range.start(), *range.end()), 1..6),
        DimKind::Stages => list(list(prop_oneof![counts(1, 16_384), counts(1, 1_000)], 2..3), 1..6),
        DimKind::Product => (counts(1, 1 << 32), counts(1, 1 << 32), counts(1, 1 << 32))
            .prop_map(|(rows, inner, columns)| {
                format!("{{ rows_per_sample = {rows}, inner = {inner}, columns = {columns} }}")
            })
            .boxed(),
    }
}

fn list(each: impl Strategy<Value = String> + 'static, length: core::ops::Range<usize>) -> BoxedStrategy<String> {
    vec(each, length).prop_map(|all| format!("[{}]", all.join(", "))).boxed()
}

/// `key = value` lines: nearly all that are required, and now and then one of the others.
fn lines(dims: &'static [Dim], share: f64) -> BoxedStrategy<String> {
    let line = |dim: &'static Dim| {
        let given = if dim.presence == Presence::Required { 0.995 } else { share };
        let value = prop_oneof![60 => value(&dim.kind), 1 => select(&EXTREMES[..]).prop_map(str::to_owned)];
        proptest::option::weighted(given, value)
            .prop_map(|value| value.map_or_else(String::new, |value| format!("{} = {value}\n", dim.name)))
    };
    dims.iter().map(line).collect::<Vec<_>>().prop_map(|lines| lines.concat()).boxed()
}

/// A workload of any kind.
fn workloads() -> impl Strategy<Value = String> {
    select(ModelKind::ALL.iter().collect::<Vec<_>>()).prop_flat_map(|kind| {
        (lines(kind.dims, 0.2), lines(Training::DIMS, 0.1)).prop_map(move |(model, training)| {
            format!("[workload.made]\n{training}[workload.made.{}]\n{model}", kind.name)
        })
    })
}

/// A whole file: a workload, a goal, and a shipped profile with another memory.
pub(crate) fn files() -> impl Strategy<Value = String> {
    let profile = (select(vec!["h200", "t4", "mine"]), counts(64, 1 << 24))
        .prop_map(|(id, mib)| format!("[profile.{id}]\nbase = \"l4\"\nmemory.nominal_mib = {mib}\n"));
    (workloads(), lines(Goal::DIMS, 0.2), proptest::option::weighted(0.2, profile))
        .prop_map(|(workload, goal, profile)| format!("{workload}[goal]\n{goal}{}", profile.unwrap_or_default()))
}
