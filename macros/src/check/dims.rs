//! A workload from dimensions, given in the attribute or by fields.

use std::collections::BTreeMap;

use gpu_tuned_core::workload::{Convnet, Dim, DimKind, Optimizer, Stage, Transformer, WorkloadSpec};
use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;

use super::{keys, values};
use crate::error::Mistakes;
use crate::model::Argument;

/// The dimensions given so far, each with its place.
pub(super) struct Dims<'m> {
    given: BTreeMap<&'static str, Given<'m>>,
    /// Whether a dimension was wrong, so that another may only seem to be missing.
    is_doubtful: bool,
}

struct Given<'m> {
    /// What its value is written in.
    argument: &'m Argument,
    value: Option<DimValue>,
}

/// The value of a dimension.
#[derive(Clone)]
pub(super) enum DimValue {
    Count(u64),
    Flag(bool),
    Optimizer(Optimizer),
    Stages(Vec<Stage>),
}

impl<'m> Dims<'m> {
    pub(super) const fn none() -> Self {
        Self { given: BTreeMap::new(), is_doubtful: false }
    }

    /// Reads the dimensions in the attribute.
    pub(super) fn read(owner: &Argument, known: &'static [Dim], list: &'m [Argument], mistakes: &mut Mistakes) -> Self {
        let before = mistakes.len();
        let names: Vec<_> = known.iter().map(|dim| dim.name).collect();
        keys::check(list, &owner.name(), &names, mistakes);
        let mut dims = Self::none();
        for argument in list {
            if let Some(dim) = known.iter().find(|dim| argument.key == dim.name) {
                let value = DimValue::read(dim.kind, argument, mistakes);
                dims.given.entry(dim.name).or_insert(Given { argument, value });
            }
        }
        dims.is_doubtful = mistakes.len() > before;
        dims
    }

    /// Adds the dimension that a field holds.
    pub(super) fn add(
        &mut self,
        dim: &Dim,
        name: &'m Argument,
        default: Option<&'m Argument>,
        value: Option<DimValue>,
        mistakes: &mut Mistakes,
    ) {
        if self.given.contains_key(dim.name) {
            mistakes
                .at(name.place(), format!("the dimension `{}` is given twice", dim.name))
                .help("give it by one field, or in the attribute");
            return;
        }
        self.given.insert(dim.name, Given { argument: default.unwrap_or(name), value });
    }

    /// Notes that something was wrong with a field that was to be a dimension.
    pub(super) fn doubt(&mut self) {
        self.is_doubtful = true;
    }

    /// The workload, or mistakes about what is missing or out of range.
    pub(super) fn spec(self, family: &Ident, known: &[Dim], mistakes: &mut Mistakes) -> Option<WorkloadSpec> {
        let is_missing = |dim: &&Dim| dim.required && !self.given.contains_key(dim.name);
        let missing: Vec<_> = known.iter().filter(is_missing).collect();
        if !missing.is_empty() && !self.is_doubtful {
            let names: Vec<_> = missing.iter().map(|dim| dim.name).collect();
            mistakes
                .at(family, format!("`{family}` needs {}", names.join(", ")))
                .help(format!("give dimensions here: `{family}({} = …)`", names.join(" = …, ")))
                .help(format!("or take them from fields: `#[tuned(dim = {}, default = …)]`", names[0]));
        }
        let spec = if family == "transformer" {
            WorkloadSpec::Transformer(self.transformer())
        } else {
            WorkloadSpec::Convnet(self.convnet())
        };
        // What is missing stands at 1, and is not what is wrong.
        let read = |name: &str| self.given.get(name).filter(|given| given.value.is_some());
        for (name, message) in spec.mistakes() {
            if let Some(given) = read(name) {
                mistakes.at(given.argument.place(), message);
            }
        }
        let is_complete = missing.is_empty() && self.given.values().all(|given| given.value.is_some());
        is_complete.then_some(spec)
    }

    fn transformer(&self) -> Transformer {
        let defaults = Transformer::new(1, 1, 1, 1);
        Transformer {
            layers: self.count("layers").unwrap_or(1),
            // Whatever the heads, they divide a width that is not known.
            d_model: self.count("d_model").or(self.count("heads")).unwrap_or(1),
            vocab: self.count("vocab").unwrap_or(1),
            seq: self.count("seq").unwrap_or(1),
            heads: self.count("heads"),
            d_ff: self.count("d_ff"),
            tied_head: self.flag("tied_head").unwrap_or(defaults.tied_head),
            optimizer: self.optimizer(),
        }
    }

    fn convnet(&self) -> Convnet {
        let stages = match self.value("stages") {
            Some(DimValue::Stages(stages)) => stages.clone(),
            _ => Vec::new(),
        };
        Convnet {
            image: self.count("image").unwrap_or(1),
            classes: self.count("classes").unwrap_or(1),
            stages,
            channels: self.count("channels").unwrap_or(3),
            stem_kernel: self.count("stem_kernel").unwrap_or(0),
            stem_stride: self.count("stem_stride").unwrap_or(1),
            residual: self.flag("residual").unwrap_or(false),
            batch_statistics: self.flag("batch_statistics").unwrap_or(false),
            optimizer: self.optimizer(),
        }
    }

    fn value(&self, name: &str) -> Option<&DimValue> {
        self.given.get(name)?.value.as_ref()
    }

    fn count(&self, name: &str) -> Option<u64> {
        if let Some(DimValue::Count(count)) = self.value(name) { Some(*count) } else { None }
    }

    fn flag(&self, name: &str) -> Option<bool> {
        if let Some(DimValue::Flag(flag)) = self.value(name) { Some(*flag) } else { None }
    }

    fn optimizer(&self) -> Optimizer {
        if let Some(DimValue::Optimizer(optimizer)) = self.value("optimizer") {
            *optimizer
        } else {
            Optimizer::default()
        }
    }
}

impl DimValue {
    /// Reads an argument whose value is of this kind.
    pub(super) fn read(kind: DimKind, argument: &Argument, mistakes: &mut Mistakes) -> Option<Self> {
        match kind {
            DimKind::Count => values::count(argument, mistakes).map(Self::Count),
            DimKind::Flag => values::flag(argument, mistakes).map(Self::Flag),
            DimKind::Optimizer => values::optimizer(argument, mistakes).map(Self::Optimizer),
            DimKind::Stages => values::stages(argument, mistakes).map(Self::Stages),
        }
    }

    /// The value as a bare literal, for kinds that a field can hold.
    pub(super) fn literal(&self) -> TokenStream {
        match self {
            Self::Count(count) => proc_macro2::Literal::u64_unsuffixed(*count).to_token_stream(),
            Self::Flag(flag) => flag.to_token_stream(),
            Self::Optimizer(_) | Self::Stages(_) => TokenStream::new(),
        }
    }
}
