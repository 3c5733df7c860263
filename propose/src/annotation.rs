//! The annotation of a struct: its attributes, the samples of a step, and the defaults that it replaces.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use gpu_tuned_attribute::sources::PLACEHOLDER as UNKNOWN;
use gpu_tuned_core::Setting;
use gpu_tuned_core::dims::{Dim, DimKind, Presence};
use syn::spanned::Spanned as _;
use syn::{Attribute, Expr, ExprLit, Field, ItemStruct, Lit, Type, Visibility};

use crate::candidate::{
    self, BATCH, Candidate, OwnDefault, edit_constructor, is_batch, is_count, is_global_batch, named_fields,
    remove_overrides,
};
use crate::code::{self, Code, Values};
use crate::flow::{Reaching, Value};
use crate::live::{live, used};
use crate::losses::{Losses, edits_for_16_bits};
use crate::model::{self, Annotated, Family, NestedDim, nested_dims, optimizer_in};
use crate::proposal::listed;
use crate::sources::{Patch, Program, Source, reached};
use crate::training_loop::TrainingLoop;

const DECLARE: &str =
    "run `cargo gpu-tuned measure`, which needs no GPU, give the costs of a sample, or use another keyword";

/// The program around a struct.
pub(super) struct Given<'a> {
    pub sources: &'a [Source],
    /// Burn's own loop. The batch of its config is that of an optimizer step, and stays.
    pub training: Option<&'a TrainingLoop<'a>>,
    pub program: Option<Program<'a>>,
    /// Sources that the program reaches; all without a known program.
    pub reached: Vec<&'a Source>,
    pub family: Family,
    /// Code of the package that the program uses, and of the binary that trains.
    pub code: Code,
    pub chosen: Code,
    pub losses: Losses,
    /// Name of the runtime in code.
    pub krate: &'a str,
}

impl<'a> Given<'a> {
    pub(super) fn new(
        sources: &'a [Source],
        training: Option<&'a TrainingLoop<'a>>,
        program: Option<Program<'a>>,
        config: Option<(&Source, &str)>,
        krate: &'a str,
    ) -> Self {
        let reached = reached(sources, program);
        let values = Rc::new(Values::new(reached.iter().copied()));
        let mut live = live(&reached, program, training, config);
        let mut family = Family::new(live.iter());
        // The model of a path dependency, where the package has none.
        if family.is_unknown()
            && let Some(used) = used(&reached, program, training, config)
        {
            live = used;
            family = Family::new(live.iter());
        }
        let all = live.iter();
        let chosen = all.clone().filter(|source| program.is_some_and(|program| program.owns(source)));
        let (code, chosen) = (Code::new(all, &values), Code::new(chosen, &values));
        let losses = Losses::new(&reached);
        Self { sources, training, program, reached, family, code, chosen, losses, krate }
    }
}

struct Annotation<'g, 'a, 'p> {
    given: &'g Given<'a>,
    source: &'a Source,
    patch: &'p mut Patch<'a>,
    help: Vec<String>,
    /// Settings with a field.
    settings: Vec<Setting>,
    /// Dimensions with a field.
    dims: Vec<&'static str>,
    /// Dimensions that the struct's own fields have by default, before those of nested configs.
    own_dims: Vec<&'static str>,
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
    given: &Given<'a>,
    patch: &mut Patch<'a>,
) -> (Vec<String>, FieldNumbers) {
    let has_own = !candidate.is_burn() && candidate.derive_of("Default").is_none();
    let own = if has_own { OwnDefault::find(candidate, source, given.sources) } else { None };
    let mut annotation = Annotation {
        given,
        source,
        patch,
        help: Vec::new(),
        settings: Vec::new(),
        dims: Vec::new(),
        own_dims: candidate
            .fields()
            .filter(|(field, _)| field.attrs.iter().any(|it| code::default(it).is_some()))
            .filter_map(|(field, name)| dimension(&name, &field.ty, &given.family))
            .collect(),
        annotated: Vec::new(),
        planned: Vec::new(),
        defaulted: Vec::new(),
        step_field: None,
        step: Step::default(),
        numbers: FieldNumbers::default(),
        own,
    };
    for (field, name) in candidate.fields() {
        if name != BATCH || is_count(&field.ty) {
            annotation.read_step(candidate, field, &name);
        }
        let setting = setting(&name, &field.ty).filter(|setting| !annotation.settings.contains(setting));
        let dim = dimension(&name, &field.ty, &given.family).filter(|dim| !annotation.dims.contains(dim));
        match (setting, dim) {
            (Some(_), _) if given.training.is_some() && is_batch(&name) => {
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
    remove_overrides(among, candidate, &annotation.planned, annotation.patch);
    edit_constructor(among, candidate, &annotation.defaulted, annotation.patch);
    if annotation.settings.contains(&Setting::Precision) {
        annotation.help.extend(edits_for_16_bits(&given.reached));
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
            return self.patch.edit(self.source, range(theirs), ours, format!("`{name}` is planned"));
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
        let theirs = field.attrs.iter().find_map(|attribute| Some((attribute, code::default(attribute)?)));
        if let Some((attribute, default)) = theirs {
            let default = self.given.code.number(&default);
            let set = self.number(candidate, field, name);
            self.numbers.dims.extend(set.or(default).map(|number| (dim, number)));
            match set {
                Some(number) if Some(number) != default => {
                    let what = format!("`{name}` is {number} in the program that trains");
                    self.patch.edit(self.source, range(attribute), format!("#[config(default = {number})]"), what);
                }
                None if default.is_some() => self.help.push(format!(
                    "`{name}`: the build plans its default, and calls give other values: write that of most runs"
                )),
                _ => {}
            }
            return self.above(field, &format!("#[tuned(dim = {dim})]"), &what);
        }
        let Given { code, chosen, .. } = self.given;
        let own = (candidate.item.ident.to_string(), name.to_owned());
        // A field that gets other values is none of the same name elsewhere.
        let elsewhere = || if code.all.contains_key(&own) { None } else { model::field(code, chosen, &[name]) };
        let known = code.fields.get(&own).copied().or_else(elsewhere);
        self.numbers.dims.extend(known.map(|number| (dim, number)));
        let default = known.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string());
        self.above(field, &format!("#[tuned(dim = {dim}, default = {default})]"), &what);
        if known.is_none() {
            self.help.push(format!("`{name}`: in place of {UNKNOWN}, the value of most runs"));
        }
    }

    /// A field that may be a config with dimensions.
    fn nested(&mut self, field: &Field, name: &str) {
        let mut held = nested_dims(&field.ty, &self.source.name, self.given);
        held.retain(|held| !self.dims.contains(&held.dim) && !self.own_dims.contains(&held.dim));
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
        let Given { family, code, chosen, krate, .. } = self.given;
        let (kind, mut inside, mut is_read) = (family.kind.name, Vec::new(), false);
        let is_asked = |dim: &&Dim| dim.presence == Presence::Required || model::is_needed(kind, dim.name, code);
        for dim in family.kind.dims.iter().filter(is_asked) {
            if self.dims.contains(&dim.name) {
                continue;
            }
            if let Some(value) = model::value(kind, dim.name, code, chosen, &family.names_of(dim.name)) {
                inside.push(format!("{} = {value}", dim.name));
                is_read = true;
            } else {
                inside.push(format!("{} = {UNKNOWN}", dim.name));
                self.help.push(format!("`{}`: in place of {UNKNOWN}, {}", dim.name, dim.meaning));
            }
        }
        let extras = model::extras(kind, code, chosen).into_iter().filter(|(dim, _)| !self.dims.contains(dim));
        inside.extend(extras.map(|(dim, value)| format!("{dim} = {value}")));
        if family.is_gru() {
            inside.push("cell = \"gru\"".to_owned());
        }
        let mut model = format!("{kind}({})", inside.join(", "));
        match optimizer_in(code, chosen) {
            Annotated::Default => {}
            Annotated::Other(optimizer) => model = format!("{model}, optimizer = \"{optimizer}\""),
            Annotated::Open(help) => self.help.push(help),
        }
        let attribute = format!("#[{krate}::gpu_tuned({model}{goal})]");
        let item = candidate.item;
        let start = start(&item.attrs, &item.vis, item.struct_token.span);
        self.patch.note(self.source, start, "the config: the model, and the samples of a step");
        // The attribute is above a derive.
        if !item.attrs.iter().any(|it| it.path().is_ident("derive")) {
            self.patch.above(self.source, start, &self.new_derive(candidate));
        }
        self.patch.above(self.source, start, &attribute);
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
        let ident = field.ident.as_ref().expect("BUG: candidates have named fields");
        let start = start(&field.attrs, &field.vis, ident.span());
        self.annotated.push(ident.to_string());
        self.patch.note(self.source, start, what);
        self.patch.above(self.source, start, attribute);
    }
}

/// Start of an item behind its documentation.
pub(super) fn start(attributes: &[Attribute], visibility: &Visibility, or: proc_macro2::Span) -> usize {
    let first = attributes.iter().find(|attribute| !attribute.path().is_ident("doc"));
    let span = match visibility {
        Visibility::Public(token) => token.span,
        Visibility::Restricted(restricted) => restricted.pub_token.span,
        Visibility::Inherited => or,
    };
    first.map_or_else(|| span.byte_range().start, |attribute| range(attribute).start)
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
    let dims = family.kind.dims.iter().filter(|dim| is_count(ty) && matches!(dim.kind, DimKind::Count(_)));
    dims.map(|dim| dim.name).find(|dim| family.names_of(dim).contains(&name))
}

/// Parts of an optimizer step in the code: fields with their numbers.
#[derive(Default)]
struct Step {
    batch: Option<(String, Option<u64>)>,
    accumulation: Option<(String, Option<u64>)>,
    samples: Option<(String, Option<u64>)>,
}

impl Annotation<'_, '_, '_> {
    /// Reads the number of a field with a part of an optimizer step.
    fn read_step(&mut self, candidate: &Candidate<'_>, field: &Field, name: &str) {
        let number = self.number(candidate, field, name);
        let part = match candidate::setting(name) {
            _ if is_global_batch(name) => &mut self.step.samples,
            Some(Setting::BatchSize) => &mut self.step.batch,
            Some(Setting::GradientAccumulation) => &mut self.step.accumulation,
            _ => return,
        };
        part.get_or_insert_with(|| (name.to_owned(), number));
    }

    /// The only number of a field in the program that trains; other programs may set other values.
    fn number(&self, candidate: &Candidate<'_>, field: &Field, name: &str) -> Option<u64> {
        let Given { code, chosen, .. } = self.given;
        let is_set = !chosen.flow.numbers(&candidate.item.ident.to_string(), name).is_empty();
        candidate::number(candidate.item, field, name, if is_set { chosen } else { code })
    }

    /// The goal in the attribute: the samples of an optimizer step, or the field with them.
    fn goal(&mut self, candidate: &Candidate<'_>) -> String {
        let code = &self.given.code;
        let accumulation = self.given.training.and_then(TrainingLoop::accumulation);
        let step = std::mem::take(&mut self.step);
        let loops = accumulation.zip(self.given.training).map(|(value, training)| {
            let reaching = code.reaching(&training.source.name, value.span().byte_range().start);
            let own = step.accumulation.as_ref().filter(|(name, _)| reaching.is_some_and(|it| is_field(it, name)));
            let number = own.map_or_else(|| code.number_of(reaching?), |(_, number)| *number);
            ("grads_accumulation".to_owned(), number)
        });
        let accumulation = loops.or(step.accumulation).or_else(|| accumulation_constant(code));
        let batch = step.batch.as_ref().and_then(|(name, number)| {
            self.help.extend(differing(candidate, name, self.given).filter(|_| number.is_none()));
            *number
        });
        let name = step.batch.as_ref().map(|(name, _)| name.as_str());
        let batch = match self.other_loader(name) {
            Some((number, help)) => {
                self.help.push(help);
                number
            }
            None => batch,
        };
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
        let whole = step.samples.and_then(|(_, number)| number);
        if let Some(field) = self.step_field.clone() {
            self.whole_step(candidate, &field, product.or(whole));
            return format!(", global_batch = {field}");
        }
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

    /// The number and a hint where the loader takes another value than this field.
    fn other_loader(&self, name: Option<&str>) -> Option<(Option<u64>, String)> {
        let Given { code, training, .. } = self.given;
        let own: BTreeSet<_> = self.given.reached.iter().filter(|it| it.is_own()).map(|it| &it.name).collect();
        let loaders: Vec<_> = code.flow.reaching.iter().filter(|it| it.is_loader && own.contains(&it.file)).collect();
        let of_loop = loaders.iter().find(|it| training.is_some_and(|training| training.has(&it.file, it.at)));
        let first = of_loop.or(loaders.first())?;
        let behind = code.flow.behind(&first.value);
        let is_it = |value: &Value| name.is_some_and(|name| is_field(value, name));
        // Unknown values may be the field's.
        if behind.iter().any(is_it) || loaders.iter().any(|it| is_it(&it.value)) || behind.contains(&Value::Unknown) {
            return None;
        }
        let number = code.number_of(&first.value);
        let takes = number.map_or_else(|| "another value".to_owned(), |number| number.to_string());
        let field = name.map_or_else(|| "the batch of the config".to_owned(), |name| format!("`{name}` of the config"));
        Some((
            number,
            format!("{}:{}: the loader takes {takes}, not {field}: pass the field to it", first.file, first.line),
        ))
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
            Some(theirs) => self.patch.edit(self.source, range(theirs), ours, what),
            None => {
                // Two defaults are refused.
                self.remove_defaults(candidate, field, name);
                self.above(field, &ours, &what);
                self.defaulted.extend(is_burn.then(|| name.to_owned()));
            }
        }
    }
}

fn is_field(value: &Value, name: &str) -> bool {
    matches!(value, Value::Field(_, field) if field == name)
}

/// The numbers that calls give a field, if they differ.
fn differing(candidate: &Candidate<'_>, name: &str, given: &Given<'_>) -> Option<String> {
    let of = candidate.item.ident.to_string();
    let own = given.chosen.flow.numbers(&of, name);
    let all = if own.is_empty() { given.code.flow.numbers(&of, name) } else { own };
    let mut places: BTreeMap<u64, &str> = BTreeMap::new();
    for (number, place) in all {
        places.entry((*number)?).or_insert(place);
    }
    let list = places.iter().map(|(number, place)| format!("{number} ({place})")).collect();
    let advice = "the calls differ, and one struct has one `global_batch`: write that of the run to plan";
    (places.len() > 1).then(|| format!("`{name}` is {}: {advice}", listed(list, ", ")))
}

/// The first constant with the accumulation of a step, and its number.
fn accumulation_constant(code: &Code) -> Option<(String, Option<u64>)> {
    let values = code.values();
    let name = values.own(is_accumulation)?;
    Some((name.to_owned(), values.named(name)))
}

/// The samples of an optimizer step in a program without a config to annotate: by the only number of its structs, else by
/// its constants.
pub(super) fn step_of_code(code: &Code) -> Option<u64> {
    let of_structs: BTreeSet<_> = code.own.iter().filter_map(|own| step_of_struct(&own.item, code)).collect();
    match of_structs.iter().collect::<Vec<_>>()[..] {
        [] => step_of_constants(code).or_else(|| step_of_loaders(code)),
        [samples] => Some(*samples),
        _ => None,
    }
}

fn step_of_struct(item: &ItemStruct, code: &Code) -> Option<u64> {
    let number = |is_meant: &dyn Fn(&str) -> bool| {
        let (field, name) = named_fields(item).find(|(_, name)| is_meant(name))?;
        Some(candidate::number(item, field, &name, code))
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

/// The batch of all loaders, where the code has no accumulation.
fn step_of_loaders(code: &Code) -> Option<u64> {
    let number = |it: &Reaching| if it.is_loader { code.number_of(&it.value) } else { None };
    let batches: BTreeSet<_> = code.flow.reaching.iter().map(number).collect();
    if batches.len() == 1 && accumulation_constant(code).is_none() { batches.into_iter().next()? } else { None }
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

impl Annotation<'_, '_, '_> {
    /// Removes other implementations of `Default`, and keeps their values.
    pub(super) fn defaults(&mut self, candidate: &Candidate<'_>) {
        if candidate.is_burn() {
            return;
        }
        if let Some(derive) = candidate.derive_of("Default") {
            let kept: Vec<_> =
                candidate::derived(derive).into_iter().filter(|path| !path.ends_with("Default")).collect();
            let is_other = |it: &&Attribute| it.path().is_ident("derive") && range(it) != range(derive);
            let (range, ours) = match &kept[..] {
                [] if candidate.item.attrs.iter().any(|it| is_other(&it)) => {
                    (candidate::with_space(&self.source.text, range(derive)), String::new())
                }
                [] => (range(derive), self.new_derive(candidate)),
                kept => (range(derive), format!("#[derive({})]", kept.join(", "))),
            };
            return self.patch.edit(self.source, range, ours, "the annotation implements `Default`");
        }
        let Some(own) = self.own.take() else { return };
        let is_open = |name: &String| !self.annotated.contains(name) && Setting::named(name).is_some();
        let open = candidate.fields().map(|(_, name)| name).find(is_open);
        if open.is_some() || !own.is_readable(candidate) {
            let open = open.map(|name| {
                format!(
                    "; `{name}` has the name of a setting and takes no default: write `#[tuned]` above it and give it a type of \
                     the setting, or rename it"
                )
            });
            return self.help.push(format!(
                "{}:{}: remove this `impl Default`, the annotation implements it; values that are not planned become \
                 `#[tuned(default = …)]`{}",
                own.source.name,
                own.line(),
                open.unwrap_or_default()
            ));
        }
        for (field, name) in candidate.fields() {
            if !self.annotated.contains(&name)
                && let Some(value) = own.value(&name)
            {
                self.above(field, &format!("#[tuned(default = {value})]"), &format!("`{name}` keeps its default"));
            }
        }
        if own.has_comments() {
            self.help.push(format!(
                "{}:{}: move the comments of this `impl Default`, which the diff removes, to the fields",
                own.source.name,
                own.line()
            ));
        }
        own.remove(self.patch);
    }

    /// A derive for a struct without one, of a trait that the program does not implement.
    fn new_derive(&self, candidate: &Candidate<'_>) -> String {
        let name = candidate.item.ident.to_string();
        let mut beside = self.given.sources.iter().filter(|source| source.is_beside(self.source));
        let is_clone = beside.any(|source| candidate::implementation("Clone", &name, &source.file.items).is_some());
        format!("#[derive({})]", if is_clone { "Debug" } else { "Clone" })
    }

    /// Removes the defaults of a planned field in attributes of other derives.
    pub(super) fn remove_defaults(&mut self, candidate: &Candidate<'_>, field: &Field, name: &str) {
        let is_default = |it: &Attribute| {
            it.path().is_ident("serde") && it.parse_args::<syn::Path>().is_ok_and(|it| it.is_ident("default"))
        };
        if candidate::remove_defaults(self.source, field, self.patch) && !candidate.item.attrs.iter().any(is_default) {
            self.help.push(format!(
                "files without the key `{name}` stop loading; `#[serde(default)]` above the struct gives missing keys their default"
            ));
        }
    }
}
