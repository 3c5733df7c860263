//! The fields, each with its setting or dimension.

use std::collections::BTreeMap;

use gpu_tuned_core::dims::{self, Dim, DimKind, DimValue, Schema};
use gpu_tuned_core::workload::{ModelKind, Training};
use gpu_tuned_core::{Setting, SettingKind, suggest};
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;

use super::attribute::{AttributeArgs, WorkloadSource};
use super::defaults;
use super::dims::Dims;
use super::{Role, values};
use crate::keys;
use crate::mistakes::Mistakes;
use crate::model::{Argument, Field, Model, Value};

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

pub(super) struct Fields<'a, 'm> {
    model: &'m Model,
    workload: Option<&'a WorkloadSource<'m>>,
    /// The field with the global batch, if there is one.
    global_batch: Option<String>,
    pub(super) dims: Dims<'m>,
    tuned: BTreeMap<Setting, &'m Field>,
}

impl<'m> Fields<'_, 'm> {
    fn role(&mut self, field: &'m Field, mistakes: &mut Mistakes) -> Role {
        let Some(helper) = field.helpers.first() else { return Role::Untouched(defaults::peer_default(field)) };
        for second in &field.helpers[1..] {
            mistakes.at(&second.path, "a field takes one `#[tuned]`");
        }
        let before = mistakes.len();
        keys::check(&helper.arguments, "#[tuned]", &keys::FIELD, mistakes);
        let find = |name| keys::find(&helper.arguments, name);
        let (setting, dim, default) = (find("setting"), find("dim"), find("default"));
        if let Some(per_rank) = find(keys::PER_RANK) {
            return self.per_rank(field, per_rank, setting.or(dim).or(find("dims")), default, mistakes);
        }
        if let Some(dims) = find("dims") {
            return self.nested(field, dims, setting.or(dim), default, mistakes);
        }
        match (setting, dim, default) {
            (Some(_), Some(dim), _) => {
                mistakes.at(dim, "a field is tuned or a dimension, not both").help("leave out `setting` or `dim`");
                self.dims.mark_faulty();
            }
            (None, Some(dim), default) => return self.dimension(field, dim, default, mistakes),
            (None, None, Some(default)) if self.is_own(field) => return self.untouched(default, mistakes),
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
            Some(default) => self.untouched(default, mistakes),
            None => Role::Untouched(defaults::peer_default(field)),
        }
    }

    /// Returns true for a user's own field: its name is no setting, or the field is the global batch.
    fn is_own(&self, field: &Field) -> bool {
        field.setting().is_none() || self.global_batch.as_ref() == Some(&field.name())
    }

    pub(super) fn untouched(&self, default: &Argument, mistakes: &mut Mistakes) -> Role {
        let Value::Is(tokens) = &default.value else {
            mistakes.at(default, "`default` takes an expression: write `default = …`");
            return Role::Untouched(None);
        };
        if !defaults::is_expression(tokens) {
            mistakes.at(tokens, "`default` takes an expression");
            return Role::Untouched(None);
        }
        if self.model.derives.config.is_always() {
            mistakes
                .at(&default.key, "in a Burn `Config`, fields that are not tuned get their default from Burn")
                .help(format!("write `#[config(default = {tokens})]`"));
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
            defaults::refuse(default, setting, mistakes);
        }
        for default in &field.defaults {
            defaults::refuse_foreign(default, setting, mistakes);
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
        let declared = defaults::for_dimension(field, argument, default, mistakes);
        let value = declared.and_then(|default| values::dim(&dim.kind, default, mistakes));
        self.dims.add(dim, argument.place(), declared.unwrap_or(argument), value.clone(), mistakes);
        if let Some(DimValue::Count(count)) = value {
            check_range(field, count, mistakes);
        }
        let default = value.as_ref().map_or_else(TokenStream::new, literal);
        Some(Role::Dimension { name: dim.name, default })
    }
}

impl Fields<'_, '_> {
    /// The dimension with this name, of the model or of its training, and the kind of field that can hold it.
    pub(super) fn known(
        &self,
        name: &str,
        place: impl ToTokens,
        argument: &Argument,
        mistakes: &mut Mistakes,
    ) -> Option<(&'static Dim, SettingKind)> {
        let dim = self.named(name, &place, argument, mistakes)?;
        let kind = kind_of(dim);
        if kind.is_none() {
            mistakes
                .at(place, format!("`{name}` cannot be a field"))
                .help(format!("give it in the attribute: `{name} = …`"));
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
pub(super) fn literal(value: &DimValue) -> TokenStream {
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
