//! The description and the goal of measurements: keys of `gpu-tuned.toml`. Keys of newer releases are skipped.

use gpu_tuned_core::Goal;
use gpu_tuned_core::dims::{self, Dim, PRODUCT_KEYS, Schema};
use gpu_tuned_core::workload::{ModelKind, Training, WorkloadSpec};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::table_reader::TableReader;
use crate::config;

/// Reads `[workload.NAME.described]`. `None` if a key is unknown: this release then cannot describe the model.
pub(super) fn workload(facts: &mut TableReader<'_, '_>) -> Option<WorkloadSpec> {
    let table = facts.table("described")?;
    let (owner, place) = (format!("{}.described", facts.path), table.span());
    let (known, is_whole) = known(table.into_inner())?;
    let table = Spanned::new(place.clone(), known);
    let spec = facts.reader.accept(config::parse_workload(&owner, place, table, facts.reader.source))?;
    is_whole.then_some(spec)
}

/// Reads `[workload.NAME.goal]`.
pub(super) fn goal(facts: &mut TableReader<'_, '_>) -> Option<Goal> {
    let table = facts.table("goal")?;
    let place = table.span();
    let (known, _) = retain(table.into_inner(), |key, _| is_in(Goal::DIMS, key));
    facts.reader.accept(config::parse_goal(Spanned::new(place, known), facts.reader.source))
}

/// Returns the supported keys of a description, and true if those are all keys. `None` if the kind of model is unknown.
fn known(table: DeTable<'_>) -> Option<(DeTable<'_>, bool)> {
    let has_model = table.iter().any(|(key, value)| model(key.get_ref(), value).is_some());
    let costs = if has_model { &[] } else { ModelKind::ALL[0].dims };
    let is_other = |(key, value): (&Spanned<DeString<'_>>, &_)| is_table(value) && !is_in(costs, key.get_ref());
    if !has_model && table.iter().any(is_other) {
        return None;
    }
    let is_known =
        |key: &str, value: &_| model(key, value).is_some() || is_in(Training::DIMS, key) || is_in(costs, key);
    let (known, mut is_whole) = retain(table, is_known);
    let below = known.into_iter().map(|(key, value)| {
        let (value, is_all) = match model(key.get_ref(), &value) {
            Some(kind) => within(value, &|key| is_in(kind.dims, key)),
            None => product(value),
        };
        is_whole &= is_all;
        (key, value)
    });
    let known = below.collect();
    Some((known, is_whole))
}

/// Retains the supported keys of a dimension; only a product is a table.
fn product(value: Spanned<DeValue<'_>>) -> (Spanned<DeValue<'_>>, bool) {
    within(value, &|key| PRODUCT_KEYS.contains(&key))
}

/// Retains keys within a value that is a table, and returns true if no key was removed.
fn within<'i>(value: Spanned<DeValue<'i>>, keep: &dyn Fn(&str) -> bool) -> (Spanned<DeValue<'i>>, bool) {
    let span = value.span();
    let (value, is_all) = match value.into_inner() {
        DeValue::Table(table) => {
            let (known, mut is_all) = retain(table, |key, _| keep(key));
            let below = known.into_iter().map(|(key, value)| {
                let (value, is_whole) = product(value);
                is_all &= is_whole;
                (key, value)
            });
            let known = below.collect();
            (DeValue::Table(known), is_all)
        }
        other => (other, true),
    };
    (Spanned::new(span, value), is_all)
}

/// Kind of the model that a table describes.
fn model(key: &str, value: &Spanned<DeValue<'_>>) -> Option<&'static ModelKind> {
    ModelKind::named(key).filter(|_| is_table(value))
}

fn is_table(value: &Spanned<DeValue<'_>>) -> bool {
    value.get_ref().is_table()
}

fn is_in(dims: &[Dim], key: &str) -> bool {
    dims::named(dims, key).is_some()
}

/// Retains keys of a table, and returns true if no key was removed.
fn retain<'i>(table: DeTable<'i>, keep: impl Fn(&str, &Spanned<DeValue<'i>>) -> bool) -> (DeTable<'i>, bool) {
    let before = table.len();
    let kept: DeTable<'i> = table.into_iter().filter(|(key, value)| keep(key.get_ref(), value)).collect();
    let is_all = kept.len() == before;
    (kept, is_all)
}
