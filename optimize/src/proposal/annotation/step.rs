//! Samples of an optimizer step, by a config's fields and the code.

use gpu_tuned_core::Setting;
use syn::{Attribute, Expr, ExprLit, Field, Lit};

use super::{Annotation, Given, UNKNOWN, range};
use crate::proposal::candidate::{self, Candidate, is_global_batch};
use crate::proposal::code;
use crate::proposal::defaults::{self, FieldNumber};

/// Parts of an optimizer step in the code: fields with their numbers.
#[derive(Default)]
pub(super) struct Step {
    batch: Option<(String, FieldNumber)>,
    accumulation: Option<(String, FieldNumber)>,
    samples: Option<(String, FieldNumber)>,
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
        let number = || defaults::number(candidate, field, name, self.given.code);
        part.get_or_insert_with(|| (name.to_owned(), number()));
    }

    /// The goal in the attribute: the samples of an optimizer step, or the field with them.
    pub(super) fn goal(&mut self, candidate: &Candidate<'_>) -> String {
        let Given { code, accumulation, .. } = *self.given;
        let step = std::mem::take(&mut self.step);
        let loops = accumulation.map(|value| {
            // `config.accumulation` is the field.
            let number = code.number(value).or_else(|| step.accumulation.as_ref()?.1.known());
            ("grads_accumulation".to_owned(), number.map_or(FieldNumber::Unclear, FieldNumber::Known))
        });
        let constants = || {
            let named = |name: &&str| candidate::setting(&name.to_lowercase()) == Some(Setting::GradientAccumulation);
            let name = code.values().names().find(named)?;
            Some((name.to_owned(), code.values().named(name).map_or(FieldNumber::Unclear, FieldNumber::Known)))
        };
        let accumulation = loops.or(step.accumulation).or_else(constants);
        let batch = step.batch.as_ref().and_then(|(_, number)| number.known());
        let product = match &accumulation {
            None => batch,
            Some((name, number)) => {
                let product = batch.zip(number.known()).and_then(|(batch, times)| batch.checked_mul(times));
                let times = number.known().filter(|times| *times > 1 && product.is_some());
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
        let whole = step.samples.and_then(|(_, number)| number.known());
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
                defaults::remove(self.source, field, self.patch);
                self.above(field, &ours, &what);
                self.defaulted.extend(is_burn.then(|| name.to_owned()));
            }
        }
    }
}

/// Returns true for a default that is this number, without quotes or constants.
fn default_is(attribute: &Attribute, samples: &str) -> bool {
    let literal = match code::default(attribute) {
        Some(Expr::Lit(ExprLit { lit: Lit::Int(number), .. })) => number.base10_digits().to_owned(),
        _ => return false,
    };
    literal == samples
}
