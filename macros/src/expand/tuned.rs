//! `impl Tuned`.

use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_core::{Setting, SettingKind};
use gpu_tuned_project::resolved::{Resolved, Selected};
use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned as _;
use syn::{Attribute, Path, Type};

use super::{literal, workload};
use gpu_tuned_attribute::{Checked, Role};
use gpu_tuned_attribute::{Field, Holder, Model, bare};

pub(super) fn implement(model: &Model, checked: &Checked) -> TokenStream {
    let (root, name) = (&model.root, &model.item.ident);
    let (impl_generics, type_generics, where_clause) = model.item.generics.split_for_impl();
    let built = built(model, checked);
    let goal = literal::goal(root, &checked.input.goal);
    let asked = asked(model, checked);
    let workload = workload::workload(model, checked);
    let tuned: Vec<_> = tuned_fields(model, checked).collect();
    let allow = &model.allow;
    // A `cfg` may leave out every statement.
    let unused = tuned.iter().all(|(field, _)| !field.guards().is_empty());
    let (unused_pins, unused_settings) =
        (unused.then(|| quote!(let _ = &mut pins;)), unused.then(|| quote!(let _ = settings;)));
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
                let mut pins = <#root::Pins as ::core::default::Default>::default();
                #unused_pins
                #(#reads)*
                pins
            }

            #unreadable

            #negative

            #compared

            fn apply(&mut self, settings: &#root::Settings) {
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
    let (root, samples) = (&model.root, workload::as_u64(field));
    Some(quote! {
        fn asked(&self) -> #root::Goal {
            let mut goal = <Self as #root::Tuned>::goal();
            goal.global_batch = ::core::option::Option::Some(#samples);
            goal
        }
    })
}

fn built(model: &Model, checked: &Checked) -> TokenStream {
    let root = &model.root;
    let config = model.item.ident.unraw().to_string();
    let none = quote!(::core::option::Option::None);
    let workload = checked.input.name.as_ref().map_or(none, |name| quote!(::core::option::Option::Some(#name)));
    let compiled = &checked.compiled;
    let target = &compiled.target;
    let targets = match &checked.input.resolved.selected {
        Selected::Targets(ids) => ids.iter().map(ProfileId::as_str).collect(),
        Selected::Generic | Selected::Native(_) => Vec::new(),
    };
    let misfits = compiled.misfits.iter().map(|misfit| &misfit.device);
    let settings = literal::settings(root, &compiled.plan.settings);
    let global_batch = literal::count(compiled.plan.schedule.global_batch);
    let memory = literal::count(compiled.plan.memory.total().0);
    let variable = Resolved::RUNTIME_VARIABLE;
    let table = if checked.input.has_build_script {
        quote!(::core::option::Option::Some(::core::include_str!(::core::env!(#variable))))
    } else {
        quote!(::core::option::Option::None)
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
        SettingKind::Count => workload::as_u64(field),
        SettingKind::Flag => quote!(self.#ident),
        SettingKind::Precision => {
            let precision = precision(root, field);
            return guarded(field, quote!(pins.#pin = #precision;));
        }
    };
    guarded(field, quote!(pins.#pin = ::core::option::Option::Some(#value);))
}

/// Returns the precision in a field as an `Option`, which is `None` for a value that names none.
fn precision(root: &Path, field: &Field) -> TokenStream {
    let (ident, ty) = (&field.ident, &field.ty);
    match field.holder(SettingKind::Precision) {
        Some(Holder::Text { .. }) => quote!(#root::Precision::spelled(&self.#ident)),
        Some(Holder::Switch) => {
            let built = quote!(<Self as #root::Tuned>::BUILT.settings.precision);
            quote!(::core::option::Option::Some(#built.switched(self.#ident)))
        }
        Some(Holder::Plain | Holder::Enum) | None => {
            let root = literal::locate(root, ty);
            quote_spanned!(ty.span()=> #root::__precision_of!(#ty, self.#ident))
        }
    }
}

/// Returns the statement that writes the planned precision, unless the field has the precision in another spelling.
fn write_precision(root: &Path, field: &Field) -> TokenStream {
    let (ident, ty) = (&field.ident, &field.ty);
    let write = match field.holder(SettingKind::Precision) {
        Some(Holder::Text { is_owned: true }) => {
            quote!(self.#ident = ::std::borrow::ToOwned::to_owned(settings.precision.name());)
        }
        Some(Holder::Text { is_owned: false }) => quote!(self.#ident = settings.precision.name();),
        Some(Holder::Switch) => return quote!(self.#ident = settings.precision.is_mixed();),
        Some(Holder::Plain | Holder::Enum) | None => {
            let root = literal::locate(root, ty);
            quote_spanned! {ty.span()=>
                #root::__require_precisions!(#ty);
                #root::__set_precision!(#ty, self.#ident, settings.precision);
            }
        }
    };
    let held = precision(root, field);
    quote!(if #held != ::core::option::Option::Some(settings.precision) { #write })
}

/// Returns `Tuned::unreadable`; `None` if every value of the fields is a setting's.
fn unreadable(root: &Path, tuned: &[(&Field, Setting)]) -> Option<TokenStream> {
    let can_fail =
        |field: &Field| matches!(field.holder(SettingKind::Precision), Some(Holder::Text { .. } | Holder::Enum));
    let precisions = tuned.iter().filter(|(_, setting)| setting.kind() == SettingKind::Precision);
    let checks: Vec<_> = precisions
        .filter(|(field, _)| can_fail(field))
        .map(|(field, _)| {
            let (name, held) = (field.name(), precision(root, field));
            let found = quote!(::core::option::Option::Some(#name));
            guarded(field, quote!(if ::core::option::Option::is_none(&#held) { return #found; }))
        })
        .collect();
    (!checks.is_empty()).then(|| {
        quote! {
            fn unreadable(&self) -> ::core::option::Option<&'static str> {
                #(#checks)*
                ::core::option::Option::None
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
            let found = quote!(::core::option::Option::Some((#name, self.#ident as i64)));
            checks.push(guarded(field, quote!(if self.#ident < 0 { return #found; })));
        }
        if let Role::Nested { dims, .. } = role {
            checks.extend(dims.iter().filter_map(|dim| Some(guarded(field, workload::negative_nested(field, dim)?))));
        }
    }
    (!checks.is_empty()).then(|| {
        quote! {
            fn negative(&self) -> ::core::option::Option<(&'static str, i64)> {
                #(#checks)*
                ::core::option::Option::None
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
    let (ident, ty) = (&field.ident, bare(&field.ty));
    let planned = format_ident!("{}", setting.name());
    let is_cast = setting.kind() == SettingKind::Count && field.type_name().as_deref() != Some("u64");
    let cast = is_cast.then(|| quote!(as #ty));
    guarded(field, quote!(self.#ident = settings.#planned #cast;))
}

/// Puts the statement behind the field's `cfg`s.
fn guarded(field: &Field, statement: TokenStream) -> TokenStream {
    let cfgs = &field.guards();
    if cfgs.is_empty() { statement } else { quote!(#(#cfgs)* { #statement }) }
}
