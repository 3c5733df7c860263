//! `impl Tuned`, with the workload as an expression over the config's fields.

use gpu_tuned_attribute::{Checked, Field, Holder, Model, NestedDim, Role, bare};
use gpu_tuned_core::dims::{Dim, DimValues, Schema};
use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_core::workload::Training;
use gpu_tuned_core::{Setting, SettingKind};
use gpu_tuned_project::resolved::{Resolved, Selected};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned as _;
use syn::{Attribute, Member, Path, Type};

use super::literal;

pub(super) fn implement(model: &Model, checked: &Checked) -> TokenStream {
    let (root, name) = (&model.root, &model.item.ident);
    let (impl_generics, type_generics, where_clause) = model.item.generics.split_for_impl();
    let built = built(model, checked);
    let goal = literal::goal(root, &checked.input.goal);
    let asked = asked(model, checked);
    let workload = workload(model, checked);
    let tuned: Vec<_> = tuned_fields(model, checked).collect();
    let allow = &model.allow;
    // A `cfg` may leave out every statement.
    let unused = tuned.iter().all(|(field, _)| !field.guards().is_empty());
    let (unused_pins, unused_settings) =
        (unused.then(|| quote!(let _ = &mut __pins;)), unused.then(|| quote!(let _ = __settings;)));
    let reads = tuned.iter().map(|(field, setting)| read(root, field, *setting));
    let writes = tuned.iter().map(|(field, setting)| write(root, field, *setting));
    let (switch, unreadable) = (amp_switch(&tuned), unreadable(root, &tuned));
    let negative = negative(model, checked);
    let compared = compared(model, checked);
    quote! {
        #[automatically_derived]
        #allow
        impl #impl_generics #root::Tuned for #name #type_generics #where_clause {
            const BUILT: #root::Built = #built;
            #switch

            fn goal() -> #root::Goal {
                #goal
            }

            #asked

            fn workload(&self) -> #root::WorkloadSpec {
                #workload
            }

            fn tuned(&self) -> #root::Pins {
                let mut __pins = <#root::Pins as ::std::default::Default>::default();
                #unused_pins
                #(#reads)*
                __pins
            }

            #unreadable

            #negative

            #compared

            fn apply(&mut self, __settings: &#root::Settings) {
                #unused_settings
                #(#writes)*
            }
        }
    }
}

/// Returns `Tuned::asked`: the goal with the global batch of a field. `None` without such a field.
fn asked(model: &Model, checked: &Checked) -> Option<TokenStream> {
    let named = checked.input.global_batch.as_ref()?.unraw();
    let field = model.fields.iter().find(|field| field.ident.unraw() == named)?;
    let (root, samples) = (&model.root, as_u64(field));
    Some(quote! {
        fn asked(&self) -> #root::Goal {
            let mut __goal = <Self as #root::Tuned>::goal();
            __goal.global_batch = ::std::option::Option::Some(#samples);
            __goal
        }
    })
}

fn built(model: &Model, checked: &Checked) -> TokenStream {
    let root = &model.root;
    let config = model.item.ident.unraw().to_string();
    let none = quote!(::std::option::Option::None);
    let workload = checked.input.name.as_ref().map_or(none, |name| quote!(::std::option::Option::Some(#name)));
    let compiled = &checked.compiled;
    let target = &compiled.target;
    let targets: Vec<&str> = match &checked.input.resolved.selected {
        Selected::Targets(ids) => ids.iter().map(ProfileId::as_str).filter(|id| *id != ProfileId::GENERIC).collect(),
        Selected::Generic | Selected::Native(_) => Vec::new(),
    };
    let misfits = compiled.misfits.iter().map(|misfit| &misfit.device);
    let settings = literal::settings(root, &compiled.plan.settings);
    let global_batch = literal::count(compiled.plan.schedule.global_batch);
    let memory = literal::count(compiled.plan.memory.total().0);
    let variable = Resolved::RUNTIME_VARIABLE;
    let table = if checked.input.has_build_script {
        quote!(::std::option::Option::Some(::std::include_str!(::std::env!(#variable))))
    } else {
        quote!(::std::option::Option::None)
    };
    quote! {
        #root::Built {
            config: #config,
            workload: #workload,
            target: #target,
            targets: &[#(#targets),*],
            misfits: &[#(#misfits),*],
            settings: #settings,
            global_batch: #global_batch,
            memory: #root::Bytes(#memory),
            table: #table,
        }
    }
}

fn tuned_fields<'a>(model: &'a Model, checked: &'a Checked) -> impl Iterator<Item = (&'a Field, Setting)> {
    model.fields.iter().zip(&checked.input.roles).filter_map(|(field, role)| match role {
        Role::Tuned(setting) => Some((field, *setting)),
        _ => None,
    })
}

fn read(root: &Path, field: &Field, setting: Setting) -> TokenStream {
    let ident = &field.ident;
    let pin = format_ident!("{}", setting.name());
    let value = match setting.kind() {
        SettingKind::Count => as_u64(field),
        SettingKind::Flag => quote!(self.#ident),
        SettingKind::Precision => {
            let precision = precision(root, field);
            return guarded(field, quote!(__pins.#pin = #precision;));
        }
        SettingKind::Kernels => {
            let kernels = kernels(root, field);
            return guarded(field, quote!(__pins.#pin = #kernels;));
        }
    };
    guarded(field, quote!(__pins.#pin = ::std::option::Option::Some(#value);))
}

/// Returns the precision in a field as an `Option`, which is `None` for a value that names none.
fn precision(root: &Path, field: &Field) -> TokenStream {
    let (ident, ty) = (&field.ident, &field.ty);
    match field.holder(SettingKind::Precision) {
        Some(Holder::Text { .. }) => quote!(#root::Precision::spelled(&self.#ident)),
        Some(Holder::Switch) => {
            let built = quote!(<Self as #root::Tuned>::BUILT.settings.precision);
            quote!(::std::option::Option::Some(#built.switched(self.#ident)))
        }
        Some(Holder::Plain | Holder::Enum) | None => {
            let root = literal::locate(root, ty);
            quote_spanned!(literal::place(ty)=> #root::__precision_of!(#ty, self.#ident))
        }
    }
}

/// Returns the statement that writes the planned precision, unless the field has the precision in another spelling.
fn write_precision(root: &Path, field: &Field) -> TokenStream {
    let (ident, ty) = (&field.ident, &field.ty);
    let write = match field.holder(SettingKind::Precision) {
        Some(Holder::Text { is_owned: true }) => {
            quote!(self.#ident = ::std::borrow::ToOwned::to_owned(__settings.precision.name());)
        }
        Some(Holder::Text { is_owned: false }) => quote!(self.#ident = __settings.precision.name();),
        Some(Holder::Switch) => return quote!(self.#ident = __settings.precision.is_mixed();),
        Some(Holder::Plain | Holder::Enum) | None => {
            let root = literal::locate(root, ty);
            quote_spanned! {literal::place(ty)=>
                #root::__require_precisions!(#ty);
                #root::__set_precision!(#ty, self.#ident, __settings.precision);
            }
        }
    };
    let held = precision(root, field);
    quote!(if #held != ::std::option::Option::Some(__settings.precision) { #write })
}

/// Returns the kernels in a field as an `Option`, which is `None` for a text that names none.
fn kernels(root: &Path, field: &Field) -> TokenStream {
    let ident = &field.ident;
    let some = quote!(::std::option::Option::Some);
    match field.holder(SettingKind::Kernels) {
        Some(Holder::Text { .. }) => {
            quote!(::std::result::Result::ok(<#root::Kernels as ::std::str::FromStr>::from_str(&self.#ident)))
        }
        Some(Holder::Switch) => quote!(#some(#root::Kernels::switched(self.#ident))),
        Some(Holder::Plain | Holder::Enum) | None => quote!(#some(self.#ident)),
    }
}

/// Returns the statement that writes the planned kernels, unless a text names them already.
fn write_kernels(root: &Path, field: &Field) -> TokenStream {
    let ident = &field.ident;
    let write = match field.holder(SettingKind::Kernels) {
        Some(Holder::Text { is_owned: true }) => {
            quote!(self.#ident = ::std::borrow::ToOwned::to_owned(__settings.kernels.name());)
        }
        Some(Holder::Text { is_owned: false }) => quote!(self.#ident = __settings.kernels.name();),
        Some(Holder::Switch) => return quote!(self.#ident = __settings.kernels.is_library();),
        Some(Holder::Plain | Holder::Enum) | None => return quote!(self.#ident = __settings.kernels;),
    };
    let held = kernels(root, field);
    quote!(if #held != ::std::option::Option::Some(__settings.kernels) { #write })
}

/// Returns `Tuned::unreadable`; `None` if every value of the fields is a setting's.
fn unreadable(root: &Path, tuned: &[(&Field, Setting)]) -> Option<TokenStream> {
    let can_fail = |field: &Field, setting: Setting| {
        matches!(field.holder(setting.kind()), Some(Holder::Text { .. } | Holder::Enum))
    };
    let checks: Vec<_> = tuned
        .iter()
        .filter(|(field, setting)| can_fail(field, *setting))
        .map(|(field, setting)| {
            let (name, variant) = (field.name(), format_ident!("{setting:?}"));
            let held = match setting {
                Setting::Kernels => kernels(root, field),
                _ => precision(root, field),
            };
            let found = quote!(::std::option::Option::Some((#root::Setting::#variant, #name)));
            guarded(field, quote!(if ::std::option::Option::is_none(&#held) { return #found; }))
        })
        .collect();
    (!checks.is_empty()).then(|| {
        quote! {
            fn unreadable(&self) -> ::std::option::Option<(#root::Setting, &'static str)> {
                #(#checks)*
                ::std::option::Option::None
            }
        }
    })
}

/// Returns `Tuned::negative`; `None` if every count is unsigned.
fn negative(model: &Model, checked: &Checked) -> Option<TokenStream> {
    let global_batch = checked.input.global_batch.as_ref().map(|name| name.unraw().to_string());
    let is_count = |field: &Field, role: &Role| match role {
        Role::Tuned(setting) => setting.kind() == SettingKind::Count,
        Role::Dimension { .. } => true,
        Role::Nested { .. } | Role::Untouched(_) => global_batch.as_ref() == Some(&field.name()),
    };
    let is_signed = |field: &Field| matches!(field.type_name().as_deref(), Some("i32" | "i64"));
    let mut checks = Vec::new();
    for (field, role) in model.fields.iter().zip(&checked.input.roles) {
        if is_count(field, role) && is_signed(field) {
            let (ident, name) = (&field.ident, field.name());
            let found = quote!(::std::option::Option::Some((#name, self.#ident as i64)));
            checks.push(guarded(field, quote!(if self.#ident < 0 { return #found; })));
        }
        if let Role::Nested { dims, .. } = role {
            checks
                .extend(dims.iter().filter_map(|dim| Some(guarded(field, negative_nested(&model.root, field, dim)?))));
        }
    }
    (!checks.is_empty()).then(|| {
        quote! {
            fn negative(&self) -> ::std::option::Option<(&'static str, i64)> {
                #(#checks)*
                ::std::option::Option::None
            }
        }
    })
}

/// Returns `Tuned::compared`: the fields with equal values on all ranks. `None` without such a field.
fn compared(model: &Model, checked: &Checked) -> Option<TokenStream> {
    let is_packed = |attribute: &Attribute| {
        attribute.path().is_ident("repr") && attribute.meta.to_token_stream().to_string().contains("packed")
    };
    if model.item.attrs.iter().any(is_packed) {
        return None; // References to its fields do not compile.
    }
    let compared = |(field, role): (&Field, &Role)| {
        let is_exempt = matches!(role, Role::Tuned(_)) || field.is_per_rank();
        // A pointer has another address in each process.
        if matches!(bare(&field.ty), Type::FnPtr(_) | Type::Ptr(_)) || (is_exempt && field.condition().is_none()) {
            return None;
        }
        let condition = field.condition().filter(|_| is_exempt).map(|condition| quote!(#[cfg(not(#condition))]));
        let (ident, cfgs) = (&field.ident, &field.cfgs);
        Some(quote!(#(#cfgs)* #condition #ident))
    };
    let fields: Vec<_> = model.fields.iter().zip(&checked.input.roles).filter_map(compared).collect();
    let root = &model.root;
    (!fields.is_empty()).then(|| {
        quote! {
            fn compared(&self) -> ::std::vec::Vec<(&'static str, ::std::string::String)> {
                #root::__compared!(self, #(#fields),*)
            }
        }
    })
}

/// Returns `Tuned::HAS_AMP_SWITCH`; `None` without such a field.
fn amp_switch(tuned: &[(&Field, Setting)]) -> Option<TokenStream> {
    let is_switch = |(field, setting): &(&Field, Setting)| {
        setting.kind() == SettingKind::Precision && field.holder(setting.kind()) == Some(Holder::Switch)
    };
    tuned.iter().any(is_switch).then(|| {
        quote!(
            const HAS_AMP_SWITCH: bool = true;
        )
    })
}

fn write(root: &Path, field: &Field, setting: Setting) -> TokenStream {
    if setting.kind() == SettingKind::Precision {
        return guarded(field, write_precision(root, field));
    }
    if setting.kind() == SettingKind::Kernels {
        return guarded(field, write_kernels(root, field));
    }
    let (ident, ty) = (&field.ident, bare(&field.ty));
    let planned = format_ident!("{}", setting.name());
    let is_cast = setting.kind() == SettingKind::Count && field.type_name().as_deref() != Some("u64");
    let cast = is_cast.then(|| quote!(as #ty));
    guarded(field, quote!(self.#ident = __settings.#planned #cast;))
}

/// Puts the statement behind the field's `cfg`s.
fn guarded(field: &Field, statement: TokenStream) -> TokenStream {
    let cfgs = &field.guards();
    if cfgs.is_empty() { statement } else { quote!(#(#cfgs)* { #statement }) }
}

/// Returns a `WorkloadSpec` expression that reads the fields.
fn workload(model: &Model, checked: &Checked) -> TokenStream {
    let fields = DimFields { model, checked };
    let root = &model.root;
    let kind = checked.input.spec.model.kind();
    let name = format_ident!("{}", kind.type_name);
    let values = checked.input.spec.model.values();
    let network = literal::structure(&quote!(#root::workload::#name), kind.dims, |dim| fields.value(dim, &values));
    let values = checked.input.spec.training.values();
    if values.is_empty() && !Training::DIMS.iter().any(|dim| fields.field_value(dim).is_some()) {
        return quote!(::std::convert::From::from(#network));
    }
    let path = quote!(#root::workload::Training);
    let training = literal::structure(&path, Training::DIMS, |dim| fields.value(dim, &values));
    quote! {
        #root::WorkloadSpec {
            model: #root::workload::ModelSpec::#name(#network),
            training: #training,
        }
    }
}

/// The fields with dimensions.
struct DimFields<'a> {
    model: &'a Model,
    checked: &'a Checked,
}

impl DimFields<'_> {
    /// Returns the dimension's field, of the config or of a struct in it.
    fn field_value(&self, dim: &Dim) -> Option<TokenStream> {
        self.model.fields.iter().zip(&self.checked.input.roles).find_map(|(field, role)| match role {
            Role::Dimension { name, default } if *name == dim.name => {
                Some(if_tuned(field, &as_dimension(field), default))
            }
            Role::Nested { dims, .. } => {
                let nested = dims.iter().find(|nested| nested.name == dim.name)?;
                Some(if_tuned(field, &as_nested(&self.model.root, field, nested), &nested.default))
            }
            _ => None,
        })
    }

    /// Returns the dimension's field, else its value; `None` for the default.
    fn value(&self, dim: &Dim, values: &DimValues) -> Option<TokenStream> {
        self.field_value(dim).or_else(|| Some(literal::dim(&self.model.root, &dim.kind, values.get(dim.name)?)))
    }
}

/// Returns the field's value, or the planned one where a `cfg_attr` leaves out the field's `#[tuned]`.
fn if_tuned(field: &Field, value: &TokenStream, planned: &TokenStream) -> TokenStream {
    let Some(condition) = field.condition() else { return value.clone() };
    quote!({
        #[cfg(#condition)]
        let __value = #value;
        #[cfg(not(#condition))]
        let __value = #planned;
        __value
    })
}

/// Returns the value of a dimension's field.
fn as_dimension(field: &Field) -> TokenStream {
    let ident = &field.ident;
    if field.type_name().as_deref() == Some("bool") { quote!(self.#ident) } else { as_u64(field) }
}

/// Returns the value of a dimension in a nested struct of unknown types. The spans let the compiler point at a wrong path or type.
fn as_nested(root: &Path, field: &Field, NestedDim { path, is_flag, .. }: &NestedDim) -> TokenStream {
    let (ident, place) = (&field.ident, place(path));
    let value = quote_spanned!(place=> self.#ident.#(#path).*);
    if *is_flag { value } else { quote_spanned!(place=> #root::__private::count(#value)) }
}

/// Returns the part of `Tuned::negative` about a dimension in a nested struct. The type is unknown, but a negative count
/// is beyond `i64` as a `u64`. The compiler reports a wrong type once, because both calls are the same.
fn negative_nested(root: &Path, field: &Field, nested: &NestedDim) -> Option<TokenStream> {
    let count = (!nested.is_flag).then(|| as_nested(root, field, nested))?;
    let path = nested.path.iter().map(|member| match member {
        Member::Named(name) => name.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    });
    let name = core::iter::once(field.name()).chain(path).collect::<Vec<_>>().join(".");
    Some(quote_spanned! {place(&nested.path)=>
        let __count = #count as i64;
        if __count < 0 {
            return ::std::option::Option::Some((#name, __count));
        }
    })
}

/// Returns the span of generated code about the last field of a path.
fn place(path: &[Member]) -> Span {
    let generated = Span::mixed_site();
    path.last().map_or(generated, |last| generated.located_at(last.span()))
}

/// Returns the value of a count's field.
fn as_u64(field: &Field) -> TokenStream {
    let ident = &field.ident;
    if field.type_name().as_deref() == Some("u64") { quote!(self.#ident) } else { quote!(self.#ident as u64) }
}
