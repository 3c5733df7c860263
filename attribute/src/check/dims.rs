//! The workload from the dimensions of the attribute and of the fields.

use std::collections::BTreeMap;

use gpu_tuned_core::dims::{Dim, DimKind, DimValue, DimValues, Presence, Schema};
use gpu_tuned_core::workload::{ModelKind, ModelSpec, Training, WorkloadSpec};
use proc_macro2::Ident;
use quote::ToTokens;

use super::values;
use crate::keys;
use crate::mistakes::Mistakes;
use crate::model::Argument;

/// The dimensions given so far, each with its place.
pub(super) struct Dims<'m> {
    given: BTreeMap<&'static str, Given<'m>>,
    /// True after a mistake in a dimension: a dimension that seems to be missing may be the wrong one.
    has_faults: bool,
}

struct Given<'m> {
    /// The argument with the value.
    argument: &'m Argument,
    value: Option<DimValue>,
}

impl<'m> Dims<'m> {
    /// Reads the training keys of the attribute.
    pub(super) fn from_training(arguments: &'m [Argument], mistakes: &mut Mistakes) -> Self {
        let mut dims = Self { given: BTreeMap::new(), has_faults: false };
        dims.take(arguments, Training::DIMS, mistakes);
        dims
    }

    /// Reads the dimensions in a family's list.
    pub(super) fn read(&mut self, owner: &Argument, kind: &ModelKind, list: &'m [Argument], mistakes: &mut Mistakes) {
        let names: Vec<_> = kind.dims.iter().map(|dim| dim.name).collect();
        let before = mistakes.len();
        keys::check(list, &owner.name(), &names, mistakes);
        self.has_faults |= mistakes.len() > before;
        self.take(list, kind.dims, mistakes);
    }

    fn take(&mut self, arguments: &'m [Argument], known: &'static [Dim], mistakes: &mut Mistakes) {
        let before = mistakes.len();
        for argument in arguments {
            if let Some(dim) = known.iter().find(|dim| argument.key == dim.name) {
                let value = values::dim(&dim.kind, argument, mistakes);
                self.given.entry(dim.name).or_insert(Given { argument, value });
            }
        }
        self.has_faults |= mistakes.len() > before;
    }

    /// Adds the dimension of a field, named at `place`.
    pub(super) fn add(
        &mut self,
        dim: &'static Dim,
        place: impl ToTokens,
        argument: &'m Argument,
        value: Option<DimValue>,
        mistakes: &mut Mistakes,
    ) {
        if self.given.contains_key(dim.name) {
            mistakes
                .at(place, format!("the dimension `{}` is given twice", dim.name))
                .help("give it by one field, or in the attribute");
            return;
        }
        self.given.insert(dim.name, Given { argument, value });
    }

    /// Records a mistake in a dimension's field.
    pub(super) fn mark_faulty(&mut self) {
        self.has_faults = true;
    }

    /// Returns the workload of a family. Reports dimensions that are missing, out of range or contradictory.
    pub(super) fn spec(self, family: &Ident, kind: &ModelKind, mistakes: &mut Mistakes) -> Option<WorkloadSpec> {
        let is_missing = |dim: &&Dim| dim.presence == Presence::Required && !self.given.contains_key(dim.name);
        let missing: Vec<_> = kind.dims.iter().filter(is_missing).collect();
        if !missing.is_empty() && !self.has_faults {
            report(&missing, family, mistakes);
        }
        let mut values = self.values(kind.dims);
        for dim in kind.dims.iter().filter(|dim| dim.presence == Presence::Required) {
            values.entry(dim.name).or_insert_with(|| dim.kind.placeholder());
        }
        let is_complete = missing.is_empty() && self.given.values().all(|given| given.value.is_some());
        self.checked(ModelSpec::from_values(kind, &values), &Training::default(), is_complete, mistakes)
    }

    /// Returns the named workload, with the training keys of the attribute over those of the file.
    pub(super) fn over(self, named: WorkloadSpec, mistakes: &mut Mistakes) -> Option<WorkloadSpec> {
        let is_complete = self.given.values().all(|given| given.value.is_some());
        self.checked(named.model, &named.training, is_complete, mistakes)
    }

    fn checked(
        &self,
        model: ModelSpec,
        training: &Training,
        is_complete: bool,
        mistakes: &mut Mistakes,
    ) -> Option<WorkloadSpec> {
        let mut values = training.values();
        values.extend(self.values(Training::DIMS));
        let spec = WorkloadSpec { model, training: Training::from_values(&values) };
        // Placeholders of missing dimensions would contradict the others.
        let found = if is_complete { spec.mistakes() } else { self.out_of_range(spec.model.kind()) };
        for (name, message) in found {
            let place = self.given.get(name).map(|given| given.argument.place());
            mistakes.at(place.unwrap_or_default(), message);
        }
        is_complete.then_some(spec)
    }

    fn out_of_range(&self, kind: &ModelKind) -> Vec<(&'static str, String)> {
        let dims = kind.dims.iter().chain(Training::DIMS);
        dims.filter_map(|dim| Some((dim.name, dim.mistake(self.given.get(dim.name)?.value.as_ref()?)?))).collect()
    }

    fn values(&self, dims: &[Dim]) -> DimValues {
        dims.iter().filter_map(|dim| Some((dim.name, self.given.get(dim.name)?.value.clone()?))).collect()
    }
}

/// Reports the missing dimensions of a family, with the places where they can be given.
fn report(missing: &[&Dim], family: &Ident, mistakes: &mut Mistakes) {
    let names: Vec<_> = missing.iter().map(|dim| dim.name).collect();
    let mistake = mistakes.at(family, format!("`{family}` needs {}", names.join(", ")));
    mistake.help(format!("give dimensions here: `{family}({} = …)`", names.join(" = …, ")));
    if let Some(dim) = missing.iter().find(|dim| matches!(dim.kind, DimKind::Count(_) | DimKind::Flag)) {
        mistake.help(format!("or take them from fields: `#[tuned(dim = {}, default = …)]`", dim.name));
    }
}
