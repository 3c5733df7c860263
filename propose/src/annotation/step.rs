//! Samples of an optimizer step, by a config's fields and the code.

use std::collections::BTreeSet;

use gpu_tuned_core::Setting;
use syn::{Attribute, Expr, ExprLit, Field, ItemStruct, Lit};

use super::{Annotation, Given, UNKNOWN, range};
use crate::candidate::{self, Candidate, is_batch, is_global_batch};
use crate::code::{self, Code};
use crate::defaults;

/// Parts of an optimizer step in the code: fields with their numbers.
#[derive(Default)]
pub(super) struct Step {
    batch: Option<(String, Option<u64>)>,
    accumulation: Option<(String, Option<u64>)>,
    samples: Option<(String, Option<u64>)>,
}

impl Annotation<'_, '_, '_> {
    /// Reads the number of a field with a part of an optimizer step.
    pub(super) fn read_step(&mut self, candidate: &Candidate<'_>, field: &Field, name: &str) {
        let part = match candidate::setting(name) {
            _ if is_global_batch(name) => &mut self.step.samples,
            Some(Setting::BatchSize) => &mut self.step.batch,
            Some(Setting::GradientAccumulation) => &mut self.step.accumulation,
            _ => return,
        };
        let number = || defaults::number(candidate.item, field, name, self.given.code);
        part.get_or_insert_with(|| (name.to_owned(), number()));
    }

    /// The goal in the attribute: the samples of an optimizer step, or the field with them.
    pub(super) fn goal(&mut self, candidate: &Candidate<'_>) -> String {
        let Given { code, accumulation, .. } = *self.given;
        let step = std::mem::take(&mut self.step);
        let loops = accumulation.map(|value| {
            // `config.accumulation` is the field.
            let number = code.number(value).or_else(|| step.accumulation.as_ref()?.1);
            ("grads_accumulation".to_owned(), number)
        });
        let accumulation = loops.or(step.accumulation).or_else(|| accumulation_constant(code));
        let batch = step.batch.as_ref().and_then(|(_, number)| *number);
        let product = match &accumulation {
            None => batch,
            Some((name, number)) => {
                let product = batch.zip(*number).and_then(|(batch, times)| batch.checked_mul(times));
                let times = number.filter(|times| *times > 1 && product.is_some());
                self.help.extend(times.zip(batch).map(|(times, batch)| {
                    format!("an optimizer step has {batch} × {times} samples: the batch, and `{name}`")
                }));
                product
            }
        };
        if let Some(field) = self.step_field.clone() {
            self.whole_step(candidate, &field, product);
            return format!(", global_batch = {field}");
        }
        let whole = step.samples.and_then(|(_, number)| number);
        self.numbers.global_batch = whole.or(product);
        if self.numbers.global_batch.is_none() {
            let times = if accumulation.is_some() { ", the batch times its accumulation" } else { "" };
            self.help.push(format!(
                "`global_batch`: in place of {UNKNOWN}, the samples of an optimizer step{times}, which the code does not give as \
                 one number"
            ));
        }
        let samples = self.numbers.global_batch.map_or_else(|| UNKNOWN.to_owned(), |samples| samples.to_string());
        format!(", global_batch = {samples}")
    }

    /// Makes the default of a loop's batch a number: the samples of a whole optimizer step.
    fn whole_step(&mut self, candidate: &Candidate<'_>, name: &str, product: Option<u64>) {
        self.numbers.global_batch = product;
        let samples = product.map_or_else(|| UNKNOWN.to_owned(), |samples| samples.to_string());
        if product.is_none() {
            self.help.push(format!(
                "`{name}`: in place of {UNKNOWN}, the samples of a whole optimizer step, which the code does not give as one \
                 number"
            ));
        }
        let Some((field, _)) = candidate.fields().find(|(_, field)| field == name) else { return };
        let what = format!("`{name}` is the samples of a whole optimizer step, as a number");
        let is_burn = candidate.is_burn();
        let ours =
            if is_burn { format!("#[config(default = {samples})]") } else { format!("#[tuned(default = {samples})]") };
        match field.attrs.iter().find(|attribute| code::default(attribute).is_some()) {
            Some(theirs) if default_is(theirs, &samples) => {}
            Some(theirs) => {
                self.patch.note(self.source, range(theirs).start, what);
                self.patch.replace(self.source, range(theirs), ours);
            }
            None => {
                // Two defaults are refused.
                self.remove_defaults(candidate, field, name);
                self.above(field, &ours, &what);
                self.defaulted.extend(is_burn.then(|| name.to_owned()));
            }
        }
    }
}

/// The first constant with the accumulation of a step, and its number.
fn accumulation_constant(code: &Code) -> Option<(String, Option<u64>)> {
    let values = code.values();
    let name = values.own(is_accumulation)?;
    Some((name.to_owned(), values.named(name)))
}

/// The samples of an optimizer step in a program without a config to annotate: by the only number of its structs, else by
/// its constants.
pub(crate) fn step_of_code(code: &Code) -> Option<u64> {
    let of_structs: BTreeSet<_> = code.own.iter().filter_map(|own| step_of_struct(&own.item, code)).collect();
    match of_structs.iter().collect::<Vec<_>>()[..] {
        [] => step_of_constants(code),
        [samples] => Some(*samples),
        _ => None,
    }
}

fn step_of_struct(item: &ItemStruct, code: &Code) -> Option<u64> {
    let number = |is_meant: &dyn Fn(&str) -> bool| {
        let fields = item.fields.iter().filter_map(|field| Some((field, field.ident.as_ref()?.to_string())));
        fields.filter(|(_, name)| is_meant(name)).map(|(field, name)| defaults::number(item, field, &name, code)).next()
    };
    let accumulation = number(&is_accumulation).or_else(|| Some(accumulation_constant(code)?.1));
    number(&is_global_batch).unwrap_or_else(|| number(&is_batch)??.checked_mul(accumulation.unwrap_or(Some(1))?))
}

fn step_of_constants(code: &Code) -> Option<u64> {
    let values = code.values();
    if let Some(whole) = values.own(is_global_batch) {
        return values.named(whole);
    }
    let batch = values.named(values.own(is_batch)?)?;
    batch.checked_mul(accumulation_constant(code).map_or(Some(1), |(_, number)| number)?)
}

fn is_accumulation(name: &str) -> bool {
    candidate::setting(name) == Some(Setting::GradientAccumulation)
}

/// Returns true for a default that is this number, without quotes or constants.
fn default_is(attribute: &Attribute, samples: &str) -> bool {
    let literal = match code::default(attribute) {
        Some(Expr::Lit(ExprLit { lit: Lit::Int(number), .. })) => number.base10_digits().to_owned(),
        _ => return false,
    };
    literal == samples
}
