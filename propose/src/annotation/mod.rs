//! The annotation of a struct.

mod default;
pub(super) mod step;

use std::collections::BTreeMap;
use std::ops::Range;

use gpu_tuned_core::dims::{Dim, DimKind, Presence};
use gpu_tuned_core::{Setting, SettingKind};
use syn::{Attribute, Expr, Field, Type, Visibility};

use crate::candidate::{self, Candidate, is_batch};
use crate::code::{self, Code};
use crate::constructor;
use crate::defaults::OwnDefault;
use crate::losses::Losses;
use crate::nested::{self, NestedDim};
use crate::numbers;
use crate::numbers::Family;
use crate::optimizer::{self, Annotated};
use crate::readiness;
use crate::sources::{Patch, Source};
use step::Step;

/// Placeholder for a figure that the code lacks.
const UNKNOWN: &str = "…";
const DECLARE: &str = "give the costs of a sample, or use another keyword";

pub(super) struct Given<'a, 'g> {
    pub sources: &'a [Source],
    /// Sources that the program reaches.
    pub reached: &'g [&'a Source],
    pub family: &'g Family,
    /// Code of the whole program, and of the binary that trains.
    pub code: &'g Code,
    pub chosen: &'g Code,
    pub losses: &'g Losses,
    /// Name of the runtime in the package.
    pub krate: &'g str,
    /// True if the config's batch is that of an optimizer step, as in Burn's own loop. That batch stays.
    pub holds_step: bool,
    /// Argument of the loop's `grads_accumulation`.
    pub accumulation: Option<&'g Expr>,
}

struct Annotation<'g, 'a, 'p> {
    given: &'g Given<'a, 'g>,
    source: &'a Source,
    patch: &'p mut Patch<'a>,
    help: Vec<String>,
    /// Settings with a field.
    settings: Vec<Setting>,
    /// Dimensions with a field.
    dims: Vec<&'static str>,
    /// Fields with an attribute of ours.
    annotated: Vec<String>,
    /// Fields that the build plans.
    planned: Vec<String>,
    /// Fields of a Burn config that get a default.
    defaulted: Vec<String>,
    /// The field with the samples of an optimizer step.
    step_field: Option<String>,
    step: Step,
    numbers: FieldNumbers,
    /// The implementation of `Default` that the annotation replaces.
    own: Option<OwnDefault<'a>>,
}

/// Numbers of fields.
#[derive(Default)]
pub(super) struct FieldNumbers {
    pub dims: BTreeMap<&'static str, u64>,
    /// Samples of an optimizer step.
    pub global_batch: Option<u64>,
}

/// Annotates the candidate in its source, and returns notes and the numbers of its fields.
pub(super) fn annotate<'a>(
    source: &'a Source,
    candidate: &Candidate<'_>,
    given: &Given<'a, '_>,
    patch: &mut Patch<'a>,
) -> (Vec<String>, FieldNumbers) {
    let (settings, dims, numbers) = (Vec::new(), Vec::new(), FieldNumbers::default());
    let (step_field, step) = (None, Step::default());
    let has_own = !candidate.is_burn() && candidate.derive_of("Default").is_none();
    let own = if has_own { OwnDefault::find(candidate, source, given.sources) } else { None };
    let mut annotation = Annotation {
        given,
        source,
        patch,
        help: Vec::new(),
        settings,
        dims,
        annotated: Vec::new(),
        planned: Vec::new(),
        defaulted: Vec::new(),
        step_field,
        step,
        numbers,
        own,
    };
    for (field, name) in candidate.fields() {
        annotation.read_step(candidate, field, &name);
        let setting = setting(&name, &field.ty).filter(|setting| !annotation.settings.contains(setting));
        let dim = dimension(&name, &field.ty, given.family).filter(|dim| !annotation.dims.contains(dim));
        match (setting, dim) {
            (Some(_), _) if given.holds_step && is_batch(&name) => {
                annotation.step_field.get_or_insert(name);
            }
            (Some(setting), _) => annotation.setting(candidate, field, (&name, setting)),
            (None, Some(dim)) => annotation.dimension(candidate, field, (&name, dim)),
            (None, None) => annotation.nested(field, &name),
        }
    }
    let mut goal = annotation.goal(candidate);
    if let Some((key, reason)) = given.losses.missing_key() {
        goal = format!("{goal}, {key}");
        annotation.help.push(reason);
    }
    annotation.help.extend(given.losses.edits.iter().cloned());
    annotation.head(candidate, &goal);
    annotation.defaults(candidate);
    let among = (source, given.sources);
    constructor::remove_overrides(among, candidate, &annotation.planned, annotation.patch);
    constructor::edit(among, candidate, &annotation.defaulted, annotation.patch);
    if annotation.settings.contains(&Setting::Precision) {
        annotation.help.extend(readiness::edits(given.reached));
    }
    (annotation.help, annotation.numbers)
}

impl Annotation<'_, '_, '_> {
    fn setting(&mut self, candidate: &Candidate<'_>, field: &Field, (name, setting): (&str, Setting)) {
        self.settings.push(setting);
        self.planned.push(name.to_owned());
        let setting = setting.to_string();
        let ours = if name == setting { "#[tuned]".to_owned() } else { format!("#[tuned(setting = {setting})]") };
        let theirs = field.attrs.iter().find(|attribute| attribute.path().is_ident("config"));
        if let Some(theirs) = theirs {
            self.annotated.push(name.to_owned());
            // A planned field has no default of its own.
            self.patch.note(self.source, range(theirs).start, format!("`{name}` is planned"));
            self.patch.replace(self.source, range(theirs), ours);
            return;
        }
        self.above(field, &ours, &format!("`{name}` is planned"));
        if candidate.is_burn() {
            self.defaulted.push(name.to_owned());
        }
        self.remove_defaults(candidate, field, name);
    }

    fn dimension(&mut self, candidate: &Candidate<'_>, field: &Field, (name, dim): (&str, &'static str)) {
        self.dims.push(dim);
        let what = format!("`{name}` is a dimension of the model");
        if let Some(default) = field.attrs.iter().find_map(code::default) {
            self.numbers.dims.extend(self.given.code.number(&default).map(|number| (dim, number)));
            return self.above(field, &format!("#[tuned(dim = {dim})]"), &what);
        }
        let Given { code, chosen, .. } = self.given;
        let own = (candidate.item.ident.to_string(), name.to_owned());
        let known = code.fields.get(&own).copied().or_else(|| numbers::field(code, chosen, &[name]));
        self.numbers.dims.extend(known.map(|number| (dim, number)));
        let default = known.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string());
        self.above(field, &format!("#[tuned(dim = {dim}, default = {default})]"), &what);
        if known.is_none() {
            self.help.push(format!("`{name}`: in place of {UNKNOWN}, the value of most runs"));
        }
    }

    /// A field that may be a config with dimensions.
    fn nested(&mut self, field: &Field, name: &str) {
        let mut held = nested::dims(&field.ty, &self.source.name, self.given);
        held.retain(|held| !self.dims.contains(&held.dim));
        if held.is_empty() {
            return;
        }
        self.dims.extend(held.iter().map(|held| held.dim));
        self.numbers.dims.extend(held.iter().map(|held| (held.dim, held.value)));
        let paths: Vec<_> = held.iter().map(NestedDim::to_attribute).collect();
        let default = self.own.as_ref().and_then(|own| own.value(name));
        let default = default.map(|value| format!(", default = {value}")).unwrap_or_default();
        self.above(field, &format!("#[tuned(dims({}){default})]", paths.join(", ")), "its dimensions");
    }

    /// The attribute above the derives.
    fn head(&mut self, candidate: &Candidate<'_>, goal: &str) {
        let &Given { family, code, chosen, krate, .. } = self.given;
        let (kind, mut inside, mut is_read) = (family.kind.name, Vec::new(), false);
        let is_asked = |dim: &&Dim| dim.presence == Presence::Required || numbers::is_needed(kind, dim.name, code);
        for dim in family.kind.dims.iter().filter(is_asked) {
            if self.dims.contains(&dim.name) {
                continue;
            }
            if let Some(value) = numbers::value(kind, dim.name, code, chosen, &family.names_of(dim.name)) {
                inside.push(format!("{} = {value}", dim.name));
                is_read = true;
            } else {
                inside.push(format!("{} = {UNKNOWN}", dim.name));
                self.help.push(format!("`{}`: in place of {UNKNOWN}, {}", dim.name, dim.meaning));
            }
        }
        let extras = numbers::extras(kind, code, chosen).into_iter().filter(|(dim, _)| !self.dims.contains(dim));
        inside.extend(extras.map(|(dim, value)| format!("{dim} = {value}")));
        if family.is_gru() {
            inside.push("cell = \"gru\"".to_owned());
        }
        let mut model = format!("{kind}({})", inside.join(", "));
        match optimizer::find(code, chosen) {
            Annotated::Default => {}
            Annotated::Other(optimizer) => model = format!("{model}, optimizer = \"{optimizer}\""),
            Annotated::Open(help) => self.help.push(help),
        }
        let attribute = format!("#[{}::gpu_tuned({model}{goal})]", krate.replace('-', "_"));
        let start = candidate.item.attrs.iter().find(|attribute| !attribute.path().is_ident("doc"));
        let start = start.map_or_else(
            || start_of(&candidate.item.vis, candidate.item.struct_token.span),
            |attribute| range(attribute).start,
        );
        self.patch.note(self.source, start, "the config: the model, and the samples of a step");
        // The attribute stands above a derive.
        if !candidate.item.attrs.iter().any(|it| it.path().is_ident("derive")) {
            self.patch.insert(self.source, start, above(&self.source.text, start, &self.new_derive(candidate)));
        }
        self.patch.insert(self.source, start, above(&self.source.text, start, &attribute));
        if is_read {
            self.help.push(
                "numbers come from the code, and are used until `cargo gpu-tuned measure` has measured".to_owned(),
            );
        }
        self.help.push(match (&family.hint, &family.doubt) {
            (Some((name, place)), _) => format!("`{}` because of `{name}` in {place}", family.kind.name),
            (None, Some(doubt)) => doubt.clone(),
            (None, None) => format!("the code does not identify the kind of model: {DECLARE}"),
        });
    }

    fn above(&mut self, field: &Field, attribute: &str, what: &str) {
        let first = field.attrs.iter().find(|attribute| !attribute.path().is_ident("doc"));
        let ident = field.ident.as_ref().expect("BUG: candidates have named fields");
        let start = first.map_or_else(|| start_of(&field.vis, ident.span()), |attribute| range(attribute).start);
        self.annotated.push(ident.to_string());
        self.patch.note(self.source, start, what);
        self.patch.insert(self.source, start, above(&self.source.text, start, attribute));
    }
}

/// An attribute, on a line of its own where its item begins a line.
pub(super) fn above(text: &str, start: usize, attribute: &str) -> String {
    let line = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let indent = &text[line..start];
    if indent.trim().is_empty() { format!("{attribute}\n{indent}") } else { format!("{attribute} ") }
}

pub(super) fn start_of(visibility: &Visibility, or: proc_macro2::Span) -> usize {
    let span = match visibility {
        Visibility::Public(token) => token.span,
        Visibility::Restricted(restricted) => restricted.pub_token.span,
        Visibility::Inherited => or,
    };
    span.byte_range().start
}

pub(super) fn range(attribute: &Attribute) -> Range<usize> {
    attribute.pound_token.span.byte_range().start..attribute.bracket_token.span.close().byte_range().end
}

fn setting(name: &str, ty: &Type) -> Option<Setting> {
    let setting = candidate::setting(name)?;
    let Type::Path(path) = ty else { return None };
    let ty = path.path.get_ident()?.to_string();
    setting.kind().field_types().contains(&ty.as_str()).then_some(setting)
}

/// Dimension of a field: one of the family's counts.
pub(super) fn dimension(name: &str, ty: &Type, family: &Family) -> Option<&'static str> {
    let is_count = code::last(ty).is_some_and(|ty| SettingKind::Count.field_types().contains(&ty.as_str()));
    let dims = family.kind.dims.iter().filter(|dim| is_count && matches!(dim.kind, DimKind::Count(_)));
    dims.map(|dim| dim.name).find(|dim| family.names_of(dim).contains(&name))
}
