//! The fields, each with its setting or dimensions, and their defaults: ours, and those of other derives.

use std::collections::BTreeMap;

use gpu_tuned_core::dims::{self, Dim, DimKind, DimValue, Schema};
use gpu_tuned_core::workload::{ModelKind, Training};
use gpu_tuned_core::{Setting, SettingKind, suggest};
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::{ExprPath, Lit, LitInt, LitStr};

use super::attribute::{AttributeArgs, WorkloadSource};
use super::values::{self, Dims};
use super::{NestedDim, Role};
use crate::model::{
    Argument, DefaultForm, FIELD_KEYS, Field, ForeignDefault, Mistakes, Model, Nested, PER_RANK, Value, check_keys,
    find,
};

/// Returns the role of each field, and all dimensions.
pub(super) fn check<'m>(
    model: &'m Model,
    arguments: &AttributeArgs<'m>,
    mistakes: &mut Mistakes,
) -> (Vec<Role>, Dims<'m>) {
    let mut dims = Dims::from_training(&model.arguments, mistakes);
    if let Some(WorkloadSource::Family { name, kind, given }) = arguments.workload {
        dims.read(name, kind, given, mistakes);
    }
    let global_batch = arguments.global_batch.as_ref().map(|name| name.unraw().to_string());
    let mut fields =
        Fields { model, workload: arguments.workload.as_ref(), global_batch, dims, tuned: BTreeMap::new() };
    let roles = model.fields.iter().map(|field| fields.role(field, mistakes)).collect();
    (roles, fields.dims)
}

struct Fields<'a, 'm> {
    model: &'m Model,
    workload: Option<&'a WorkloadSource<'m>>,
    /// The field with the global batch, if there is one.
    global_batch: Option<String>,
    dims: Dims<'m>,
    tuned: BTreeMap<Setting, &'m Field>,
}

impl<'m> Fields<'_, 'm> {
    fn role(&mut self, field: &'m Field, mistakes: &mut Mistakes) -> Role {
        let Some(helper) = field.helpers.first() else { return Role::Untouched(peer_default(field)) };
        for second in &field.helpers[1..] {
            mistakes.at(&second.path, "a field takes one `#[tuned]`");
        }
        let before = mistakes.len();
        check_keys(&helper.arguments, "#[tuned]", &FIELD_KEYS, mistakes);
        let given = |name| find(&helper.arguments, name);
        let (setting, dim, default) = (given("setting"), given("dim"), given("default"));
        if let Some(per_rank) = given(PER_RANK) {
            return self.per_rank(field, per_rank, setting.or(dim).or(given("dims")), default, mistakes);
        }
        if let Some(dims) = given("dims") {
            return self.nested(field, dims, setting.or(dim), default, mistakes);
        }
        match (setting, dim, default) {
            (Some(_), Some(dim), _) => {
                mistakes.at(dim, "a field is tuned or a dimension, not both").help("leave out `setting` or `dim`");
                self.dims.mark_faulty();
            }
            (None, Some(dim), default) => return self.dimension(field, dim, default, mistakes),
            (None, None, Some(default)) if self.is_own(field) => return self.untouched(field, default, mistakes),
            // An unknown key may be the one that names the setting.
            _ if mistakes.len() > before => self.dims.mark_faulty(),
            (setting, None, default) => return self.tuned(field, setting, default, mistakes),
        }
        Role::Untouched(None)
    }

    /// Checks a user's own field whose values ranks do not compare. `other` is a second role in the same attribute, which is a
    /// mistake.
    fn per_rank(
        &mut self,
        field: &Field,
        per_rank: &Argument,
        other: Option<&Argument>,
        default: Option<&Argument>,
        mistakes: &mut Mistakes,
    ) -> Role {
        if !matches!(per_rank.value, Value::Absent) {
            mistakes.at(per_rank, "`per_rank` takes no value").help("write `#[tuned(per_rank)]`");
        }
        if other.is_some() || !self.is_own(field) {
            mistakes
                .at(per_rank, format!("`{}` is planned, and all ranks have one plan", field.ident))
                .help("leave out `per_rank`: tuned fields are not compared, and dimensions are equal on all ranks");
            self.dims.mark_faulty();
        }
        match default {
            Some(default) => self.untouched(field, default, mistakes),
            None => Role::Untouched(peer_default(field)),
        }
    }

    /// Returns true for a user's own field: its name is no setting, or the field is the global batch.
    fn is_own(&self, field: &Field) -> bool {
        field.setting().is_none() || self.global_batch.as_ref() == Some(&field.name())
    }

    fn untouched(&self, field: &Field, default: &Argument, mistakes: &mut Mistakes) -> Role {
        let Value::Is(tokens) = &default.value else {
            mistakes.at(default, "`default` takes an expression: write `default = …`");
            return Role::Untouched(None);
        };
        if !is_expression(tokens) {
            mistakes.at(tokens, "`default` takes an expression");
            return Role::Untouched(None);
        }
        if self.model.derives.config.is_always() {
            mistakes
                .at(&default.key, "in a Burn `Config`, fields that are not tuned get their default from Burn")
                .help(format!("write `#[config(default = {tokens})]`"));
        }
        // One that is read, and differs. A function of serde is that of a missing key.
        let of_peer = peer_default(field).filter(|theirs| theirs.to_string() != tokens.to_string());
        let is_value = |default: &&ForeignDefault| !default.is_conditional && default.form == DefaultForm::Value;
        if let (Some(_), Some(theirs)) = (of_peer, field.defaults.iter().find(is_value)) {
            refuse_second(default, theirs, mistakes);
        }
        Role::Untouched(Some(tokens.clone()))
    }

    fn tuned(
        &mut self,
        field: &'m Field,
        named: Option<&Argument>,
        default: Option<&Argument>,
        mistakes: &mut Mistakes,
    ) -> Role {
        let Some(setting) = setting(field, named, mistakes) else { return Role::Untouched(None) };
        check_type(field, setting.kind(), &format!("the setting `{setting}`"), mistakes);
        if let Some(default) = default {
            refuse_default(default, setting, mistakes);
        }
        for default in &field.defaults {
            refuse_foreign_default(default, setting, mistakes);
        }
        match self.tuned.insert(setting, field) {
            // Two fields behind `cfg` may exclude each other.
            Some(first) if first.guards().is_empty() || field.guards().is_empty() => {
                mistakes.at(
                    &field.ident,
                    format!("`{}` and `{}` both are the setting `{setting}`", first.ident, field.ident),
                );
            }
            _ => {}
        }
        Role::Tuned(setting)
    }

    fn dimension(
        &mut self,
        field: &'m Field,
        argument: &'m Argument,
        default: Option<&'m Argument>,
        mistakes: &mut Mistakes,
    ) -> Role {
        let before = mistakes.len();
        let role = self.read_dimension(field, argument, default, mistakes);
        if mistakes.len() > before {
            self.dims.mark_faulty();
        }
        role.unwrap_or(Role::Untouched(None))
    }

    fn read_dimension(
        &mut self,
        field: &'m Field,
        argument: &'m Argument,
        default: Option<&'m Argument>,
        mistakes: &mut Mistakes,
    ) -> Option<Role> {
        let name = values::name(argument, "a dimension's name, such as layers", mistakes)?;
        let (dim, kind) = self.known(&name, argument.place(), argument, mistakes)?;
        check_type(field, kind, &format!("the dimension `{name}`"), mistakes);
        check_is_there(field, mistakes);
        let declared = default_of_dimension(field, argument, default, mistakes);
        let value = declared.and_then(|default| values::dim(&dim.kind, default, mistakes));
        self.dims.add(dim, argument.place(), declared.unwrap_or(argument), value.clone(), mistakes);
        if let Some(DimValue::Count(count)) = value {
            check_range(field, count, mistakes);
        }
        let default = value.as_ref().map_or_else(TokenStream::new, literal);
        Some(Role::Dimension { name: dim.name, default })
    }

    /// Checks a field with `dims(…)`. `other` is a second role in the same attribute, which is a mistake.
    fn nested(
        &mut self,
        field: &'m Field,
        dims: &'m Argument,
        other: Option<&Argument>,
        default: Option<&Argument>,
        mistakes: &mut Mistakes,
    ) -> Role {
        let before = mistakes.len();
        if let Some(other) = other {
            let role = if other.key == "setting" { "setting" } else { "dimension" };
            mistakes
                .at(other, format!("a field with `dims` has dimensions inside, and is no {role} itself"))
                .help(format!("leave out `{}` or `dims`", other.key));
        }
        check_is_there(field, mistakes);
        let list = if let Value::Nested(list) = &dims.value {
            list.as_slice()
        } else {
            mistakes
                .at(dims, "`dims` takes the dimensions in this field, each with its default")
                .help("write `dims(layers: n_layers = …, d_model = …)`");
            &[]
        };
        let dims = list.iter().filter_map(|nested| self.nested_dimension(nested, mistakes)).collect();
        // Missing defaults were reported above.
        if mistakes.len() > before || list.is_empty() {
            self.dims.mark_faulty();
        }
        let default = default.and_then(|default| match self.untouched(field, default, mistakes) {
            Role::Untouched(default) => default,
            _ => None,
        });
        Role::Nested { dims, default }
    }

    fn nested_dimension(&mut self, nested: &'m Nested, mistakes: &mut Mistakes) -> Option<NestedDim> {
        let argument = &nested.argument;
        let (dim, kind) = self.known(&argument.name(), &argument.key, argument, mistakes)?;
        let value = if matches!(argument.value, Value::Absent) {
            mistakes
                .at(&argument.key, "a dimension needs a default: the build plans with it")
                .help("the attribute cannot see those of another struct: write the value of most runs behind `=`");
            None
        } else {
            values::dim(&dim.kind, argument, mistakes)
        };
        self.dims.add(dim, &argument.key, argument, value.clone(), mistakes);
        let default = value.as_ref().map_or_else(TokenStream::new, literal);
        Some(NestedDim { name: dim.name, path: nested.path.clone(), is_flag: kind == SettingKind::Flag, default })
    }
}

impl Fields<'_, '_> {
    /// The dimension with this name, of the model or of its training, and the kind of field that can hold it.
    fn known(
        &self,
        name: &str,
        place: impl ToTokens,
        argument: &Argument,
        mistakes: &mut Mistakes,
    ) -> Option<(&'static Dim, SettingKind)> {
        let dim = self.named(name, &place, argument, mistakes)?;
        let kind = kind_of(dim);
        if kind.is_none() {
            let is_of_training = dims::named(Training::DIMS, name).is_some();
            let list = if is_of_training { "the attribute" } else { "the list of the model" };
            mistakes.at(place, format!("`{name}` cannot be a field")).help(format!("give it in {list}: `{name} = …`"));
        }
        Some((dim, kind?))
    }

    fn named(
        &self,
        name: &str,
        place: impl ToTokens,
        argument: &Argument,
        mistakes: &mut Mistakes,
    ) -> Option<&'static Dim> {
        let family = match self.workload? {
            WorkloadSource::Family { kind, .. } => Some(*kind),
            WorkloadSource::Named { .. } => None,
        };
        let of_model = family.map_or(&[][..], |kind: &ModelKind| kind.dims);
        if let Some(dim) = dims::named(of_model, name).or_else(|| dims::named(Training::DIMS, name)) {
            return Some(dim);
        }
        let Some(family) = family else {
            mistakes
                .at(argument, "a workload that is named takes no dimensions of the model from fields")
                .help("give the model in the attribute instead, such as `transformer(…)` or `convnet(…)`");
            return None;
        };
        let fit: Vec<_> =
            of_model.iter().chain(Training::DIMS).filter(|dim| kind_of(dim).is_some()).map(|dim| dim.name).collect();
        let near = suggest(name, fit.iter().copied());
        mistakes
            .at(place, format!("`{}` has no dimension `{name}`{near}", family.name))
            .help(format!("it has {}", fit.join(", ")));
        None
    }
}

/// Returns the value as a bare literal, for kinds that a field can have.
fn literal(value: &DimValue) -> TokenStream {
    match value {
        DimValue::Count(count) => proc_macro2::Literal::u64_unsuffixed(*count).to_token_stream(),
        DimValue::Flag(flag) => flag.to_token_stream(),
        _ => TokenStream::new(),
    }
}

/// Returns the kind of field for a dimension.
const fn kind_of(dim: &Dim) -> Option<SettingKind> {
    match dim.kind {
        DimKind::Count(_) => Some(SettingKind::Count),
        DimKind::Flag => Some(SettingKind::Flag),
        _ => None,
    }
}

fn setting(field: &Field, named: Option<&Argument>, mistakes: &mut Mistakes) -> Option<Setting> {
    let (name, place) = match named {
        Some(argument) => (values::name(argument, "a setting's name, such as batch_size", mistakes)?, argument.place()),
        None => (field.name(), field.ident.to_token_stream()),
    };
    let setting = Setting::named(&name);
    if setting.is_none() {
        let all = Setting::ALL.map(Setting::name);
        let mistake = mistakes.at(place, format!("there is no setting `{name}`{}", suggest(&name, all)));
        mistake.help(format!("the settings are {}", all.join(", ")));
        if named.is_none() {
            mistake.help("a field of another name needs the setting's name: `#[tuned(setting = batch_size)]`");
        }
    }
    setting
}

/// Reports a dimension field behind `cfg`.
pub(super) fn check_is_there(field: &Field, mistakes: &mut Mistakes) {
    if let Some(cfg) = field.cfgs.first() {
        mistakes.at(cfg, "a dimension cannot be behind a `cfg`: the workload is computed from it");
    }
}

/// Reports a field of another type than the kind needs.
pub(super) fn check_type(field: &Field, kind: SettingKind, what: &str, mistakes: &mut Mistakes) {
    if field.holder(kind).is_some() {
        return;
    }
    let mut types: Vec<_> = kind.field_types().iter().map(|name| format!("`{name}`")).collect();
    if kind == SettingKind::Precision {
        types.push("an enum".to_owned());
    }
    let last = types.pop().unwrap_or_default();
    let list = if types.is_empty() { last } else { format!("{} or {last}", types.join(", ")) };
    mistakes.at(&field.ty, format!("{what} needs a field of type {list}"));
}

/// Reports a count beyond the range of the field's type.
pub(super) fn check_range(field: &Field, count: u64, mistakes: &mut Mistakes) {
    let largest = match field.type_name().as_deref() {
        Some("i32") => u64::from(i32::MAX.unsigned_abs()),
        Some("u32") => u64::from(u32::MAX),
        Some("i64") => i64::MAX.unsigned_abs(),
        _ => u64::MAX,
    };
    if count > largest {
        let ty = field.ty.to_token_stream();
        mistakes.at(&field.ty, format!("`{}` = {count} does not fit into `{ty}`", field.ident)).help("use a `u64`");
    }
}

/// Returns true for tokens that parse as an expression. Other tokens would break the whole expansion.
fn is_expression(tokens: &TokenStream) -> bool {
    syn::parse2::<syn::Expr>(tokens.clone()).is_ok()
}

/// Returns the default of a user's own field by another macro's attribute: clap's expression, serde's function, or a
/// number, flag or text of the field's own type.
pub fn peer_default(field: &Field) -> Option<TokenStream> {
    field.defaults.iter().filter(|default| !default.is_conditional).find_map(|default| {
        let Value::Is(tokens) = &default.argument.value else { return None };
        if default.form == DefaultForm::Function {
            let path = syn::parse2::<LitStr>(tokens.clone()).ok()?.parse::<ExprPath>().ok()?;
            return Some(quote!(#path()));
        }
        // Clap reports values that are no expressions.
        let is_code = ["default_value_t", "skip"].iter().any(|key| default.argument.key == key);
        if is_code && is_expression(tokens) {
            return Some(tokens.clone());
        }
        let is_text = default.attribute == "arg" && field.type_name().as_deref() == Some("String");
        if let (true, Ok(text)) = (is_text, syn::parse2::<LitStr>(tokens.clone())) {
            return Some(quote!(::std::borrow::ToOwned::to_owned(#text)));
        }
        let Value::Is(tokens) = &default.unquoted.value else { return None };
        literal_of(tokens, field)
    })
}

/// Returns a number or a flag of the field's type.
fn literal_of(tokens: &TokenStream, field: &Field) -> Option<TokenStream> {
    let name = field.type_name()?;
    let is_float = ["f32", "f64"].contains(&name.as_str());
    let is_own = match syn::parse2::<Lit>(tokens.clone()) {
        Ok(Lit::Bool(_)) => name == "bool",
        Ok(Lit::Float(_)) => is_float,
        // `default_value = "1"` of a rate.
        Ok(Lit::Int(number)) if is_float && number.suffix().is_empty() => {
            return syn::parse_str(&format!("{}.0", number.base10_digits())).ok();
        }
        Ok(Lit::Int(_)) => values::INTEGERS.contains(&name.as_str()),
        _ => false,
    };
    is_own.then(|| tokens.clone())
}

/// Reports a default in `#[tuned]` on a tuned field.
fn refuse_default(default: &Argument, setting: Setting, mistakes: &mut Mistakes) {
    refuse_default_at(default.place(), default, default, setting, "", mistakes);
}

/// Reports a default of another macro on a tuned field.
fn refuse_foreign_default(default: &ForeignDefault, setting: Setting, mistakes: &mut Mistakes) {
    let ForeignDefault { attribute, argument, unquoted, .. } = default;
    let instead = if attribute == "serde" {
        "; `#[serde(default)]` above the struct gives every missing key its default"
    } else {
        ""
    };
    let place = if let Value::List(_) = argument.value { argument.key.to_token_stream() } else { quote!(#argument) };
    refuse_default_at(place, argument, unquoted, setting, instead, mistakes);
}

/// Reports a default on a tuned field, with advice for both possible intentions.
fn refuse_default_at(
    place: TokenStream,
    default: &Argument,
    unquoted: &Argument,
    setting: Setting,
    instead: &str,
    mistakes: &mut Mistakes,
) {
    let text =
        if let Value::List(_) = default.value { format!("{}(…)", default.key) } else { quote!(#default).to_string() };
    let mistake = mistakes.at(place, format!("the build plans `{setting}`, so it cannot have a default of its own"));
    mistake.help(format!("drop `{text}` to train with the planned value{instead}"));
    if setting != Setting::BatchSize {
        return;
    }
    let literal = if let Value::Is(value) = &unquoted.value { syn::parse2::<LitInt>(value.clone()).ok() } else { None };
    match literal {
        Some(value) => mistake.help(format!(
            "or, if {value} samples make an optimizer step, write `#[gpu_tuned(…, global_batch = {value})]`"
        )),
        None => mistake.help(
            "or, if the default is the samples of an optimizer step, write that number: `#[gpu_tuned(…, global_batch = …)]`",
        ),
    };
}

/// Reports our default beside another macro's.
fn refuse_second(ours: &Argument, theirs: &ForeignDefault, mistakes: &mut Mistakes) {
    let message = format!("`#[{}]` gives this field a default already", theirs.attribute);
    mistakes.at(ours, message).help("keep one of them");
}

/// Returns the only default of a dimension: ours, or another macro's.
fn default_of_dimension<'m>(
    field: &'m Field,
    dim: &Argument,
    ours: Option<&'m Argument>,
    mistakes: &mut Mistakes,
) -> Option<&'m Argument> {
    let theirs = field.defaults.iter().find(|default| default.form == DefaultForm::Value);
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => {
            refuse_second(ours, theirs, mistakes);
            None
        }
        (Some(ours), None) => Some(ours),
        (None, Some(theirs)) => Some(&theirs.unquoted),
        (None, None) => {
            let name = dim.place();
            mistakes
                .at(dim, "a dimension needs a default: the build plans with it")
                .help(format!("write `#[tuned(dim = {name}, default = …)]`, with the value that most runs have"));
            None
        }
    }
}
