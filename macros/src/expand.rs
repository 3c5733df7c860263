//! Expansion of a checked model: the item with defaults and documentation, `Default`, and `Tuned`.

mod literal;
mod tuned;

use core::fmt::Write;

use gpu_tuned_attribute::{Checked, DerivePresence, Derives, Field as Known, Model, Role, bare, peer_default};
use gpu_tuned_core::plan::{Misfit, Remedy};
use gpu_tuned_core::{Setting, Settings};
use gpu_tuned_project::resolved::Resolved;
use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::{Data, DeriveInput, Field, Type, WherePredicate, parse_quote};

pub(crate) use literal::{place, settings};

/// Expands to the item with defaults and documentation, `Default` for plain structs, and `Tuned`.
pub(crate) fn expand(model: Model, checked: &Checked) -> TokenStream {
    let default = (!model.derives.config.is_always()).then(|| implement_default(&model, checked));
    let tuned = tuned::implement(&model, checked);
    let inputs = inputs(checked);
    let docs = document(&model, checked);
    // Clap shows a struct's documentation as its help text.
    let (of_item, of_impl) = if model.derives.clap.is_possible() { (None, Some(docs)) } else { (Some(docs), None) };
    let item = annotate(model, checked, of_item);
    let of_impl = of_impl.map(|docs| quote!(#[doc = #docs]));
    quote! {
        #item
        #default
        #of_impl
        #tuned
        #inputs
    }
}

/// The variable with the directory for expansions.
pub(crate) const EXPAND_DIR: &str = "GPU_TUNED_EXPAND_DIR";

/// Returns constants with the files and variables that the macro reads. Cargo and caches of compilers, such as sccache, compare
/// only those that the code names.
fn inputs(checked: &Checked) -> TokenStream {
    let table = Resolved::VARIABLE;
    let of_table = if checked.input.has_build_script {
        quote!(
            const _: &[u8] = ::std::include_bytes!(::std::env!(#table));
        )
    } else {
        quote!(
            const _: ::std::option::Option<&str> = ::std::option_env!(#table);
        )
    };
    quote! {
        #of_table
        const _: ::std::option::Option<&str> = ::std::option_env!(#EXPAND_DIR);
    }
}

/// A derive that reads defaults from attributes.
#[derive(Clone, Copy)]
enum Derive {
    /// Burn's `Config`.
    Burn,
    /// Clap's `Parser` or `Args`.
    Clap,
}

impl Derive {
    const ALL: [Self; 2] = [Self::Burn, Self::Clap];

    fn presence(self, derives: &Derives) -> &DerivePresence {
        match self {
            Self::Burn => &derives.config,
            Self::Clap => &derives.clap,
        }
    }

    /// Returns true if the field has a default for this derive.
    fn has_default(self, known: &Known) -> bool {
        let names: &[&str] = match self {
            Self::Burn => &["config"],
            Self::Clap => &["arg", "clap"],
        };
        known.defaults.iter().any(|default| names.iter().any(|name| default.attribute == name))
    }
}

fn annotate(model: Model, checked: &Checked, docs: Option<String>) -> DeriveInput {
    let Model { root, mut item, fields: known, derives, .. } = model;
    for ((field, known), role) in fields_mut(&mut item).zip(&known).zip(&checked.input.roles) {
        let value = match role {
            Role::Tuned(setting) => literal::held(&root, known, checked.compiled.plan.settings.get(*setting)),
            Role::Dimension { default, .. } => default.clone(),
            Role::Nested { .. } | Role::Untouched(_) => continue,
        };
        inject(&derives, field, known, &value);
    }
    if let Some(docs) = docs {
        item.attrs.push(parse_quote!(#[doc = #docs]));
    }
    item
}

/// Gives the field a default by the attribute of each derive, under the conditions of the derive and of `#[tuned]`.
pub(crate) fn inject(derives: &Derives, field: &mut Field, known: &Known, value: &TokenStream) {
    for derive in Derive::ALL.into_iter().filter(|derive| !derive.has_default(known)) {
        let of_derive = match derive.presence(derives) {
            DerivePresence::Never => continue,
            DerivePresence::If(condition) => Some(condition),
            DerivePresence::Always => None,
        };
        let attribute = attribute(derive, field, value, known.has_action);
        let conditions: Vec<_> = of_derive.into_iter().chain(known.condition()).collect();
        field.attrs.push(match conditions[..] {
            [] => parse_quote!(#[#attribute]),
            _ => parse_quote!(#[cfg_attr(all(#(#conditions),*), #attribute)]),
        });
    }
}

fn attribute(derive: Derive, field: &Field, value: &TokenStream, has_action: bool) -> TokenStream {
    let literal = syn::parse2::<syn::Lit>(value.clone());
    let is_literal = literal.is_ok_and(|literal| !matches!(literal, syn::Lit::Str(_)));
    match derive {
        Derive::Burn if is_literal => quote!(config(default = #value)),
        // Burn takes one literal, and parses a string as an expression.
        Derive::Burn => {
            let text: String = value.to_string().split_whitespace().collect();
            quote!(config(default = #text))
        }
        // Clap makes a bool a switch, which cannot be turned off. Its own derive names `clap`, too.
        Derive::Clap if is_flag(field) && !has_action => {
            quote!(arg(default_value_t = #value, action = clap::ArgAction::Set))
        }
        Derive::Clap => quote!(arg(default_value_t = #value)),
    }
}

fn is_flag(field: &Field) -> bool {
    bare(&field.ty).to_token_stream().to_string() == quote!(bool).to_string()
}

/// The named fields.
pub(crate) fn fields_mut(item: &mut DeriveInput) -> impl Iterator<Item = &mut Field> {
    let data = if let Data::Struct(data) = &mut item.data { Some(data) } else { None };
    data.into_iter().flat_map(|data| data.fields.iter_mut())
}

/// `impl Default`, for structs without Burn's `Config`.
fn implement_default(model: &Model, checked: &Checked) -> TokenStream {
    let (root, name, allow) = (&model.root, &model.item.ident, &model.allow);
    let parameters: Vec<String> =
        model.item.generics.type_params().map(|parameter| parameter.ident.to_string()).collect();
    let (mut bounds, mut values) = (Bounds::default(), Vec::new());
    for (field, role) in model.fields.iter().zip(&checked.input.roles) {
        let (ident, cfgs, ty) = (&field.ident, &field.cfgs, bare(&field.ty));
        let of_type = quote_spanned!(literal::place(ty)=> <#ty as #root::__private::FieldDefault>::field_default());
        let value = match role {
            Role::Tuned(setting) => Some(literal::held(root, field, checked.compiled.plan.settings.get(*setting))),
            Role::Dimension { default, .. } => Some(default.clone()),
            Role::Nested { default, .. } | Role::Untouched(default) => default.clone(),
        };
        // Without its `#[tuned]`, a field has the default of another derive.
        let without = field.condition().map(|condition| (condition, peer_default(field)));
        let takes_type = value.is_none() || matches!(without, Some((_, None)));
        if takes_type && mentions(&field.ty, &parameters) {
            bounds.add(field, parse_quote!(#ty: ::std::default::Default));
        }
        let value = value.unwrap_or_else(|| of_type.clone());
        values.push(match without {
            None => quote!(#(#cfgs)* #ident: #value),
            Some((condition, peer)) => {
                let peer = peer.unwrap_or(of_type);
                quote! {
                    #(#cfgs)* #[cfg(#condition)] #ident: #value,
                    #(#cfgs)* #[cfg(not(#condition))] #ident: #peer
                }
            }
        });
    }
    // Without Burn's derive, which gives each field its default.
    let cfg = if let DerivePresence::If(condition) = &model.derives.config {
        Some(quote!(#[cfg(not(#condition))]))
    } else {
        None
    };
    let implementation = |(condition, bounds): (TokenStream, Vec<WherePredicate>)| {
        let mut generics = model.item.generics.clone();
        if !bounds.is_empty() {
            generics.make_where_clause().predicates.extend(bounds);
        }
        let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
        quote! {
            #[automatically_derived]
            #allow
            #cfg
            #condition
            impl #impl_generics ::std::default::Default for #name #type_generics #where_clause {
                fn default() -> Self {
                    Self { #(#values),* }
                }
            }
        }
    };
    bounds.by_condition().into_iter().map(implementation).collect()
}

/// Bounds of `Default`, by the conditions of their fields: `None` for fields that are always there.
#[derive(Default)]
struct Bounds(Vec<(Option<TokenStream>, Vec<WherePredicate>)>);

impl Bounds {
    /// Conditions that are told apart: each doubles the code.
    const MOST: usize = 4;

    fn add(&mut self, field: &Known, bound: WherePredicate) {
        let condition = field.presence();
        let text = |condition: &Option<TokenStream>| condition.as_ref().map(ToString::to_string);
        match self.0.iter_mut().find(|(known, _)| text(known) == text(&condition)) {
            Some((_, bounds)) => bounds.push(bound),
            None => self.0.push((condition, vec![bound])),
        }
    }

    /// Returns the bounds under each combination of conditions, with its `cfg`s. A bound itself takes no `cfg`.
    fn by_condition(self) -> Vec<(TokenStream, Vec<WherePredicate>)> {
        let mut combinations = vec![(TokenStream::new(), Vec::new())];
        for (index, (condition, bounds)) in self.0.into_iter().enumerate() {
            let with = |(cfgs, known): &(TokenStream, Vec<WherePredicate>), cfg: TokenStream| {
                (quote!(#cfgs #cfg), [known.as_slice(), &bounds].concat())
            };
            combinations = match condition.filter(|_| index < Self::MOST) {
                None => combinations.iter().map(|it| with(it, TokenStream::new())).collect(),
                Some(condition) => {
                    let present = combinations.iter().map(|it| with(it, quote!(#[cfg(#condition)])));
                    let absent =
                        combinations.iter().map(|(cfgs, known)| (quote!(#cfgs #[cfg(not(#condition))]), known.clone()));
                    present.chain(absent).collect()
                }
            };
        }
        combinations
    }
}

/// Returns true if a type depends on a type parameter.
pub(crate) fn mentions(ty: &Type, parameters: &[String]) -> bool {
    fn any(tokens: TokenStream, parameters: &[String]) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => parameters.iter().any(|parameter| ident == parameter),
            TokenTree::Group(group) => any(group.stream(), parameters),
            _ => false,
        })
    }
    any(ty.to_token_stream(), parameters)
}

/// Formats the build's target and its settings.
fn document(model: &Model, checked: &Checked) -> String {
    let compiled = &checked.compiled;
    let mut text = format!("\n# Tuned for `{}`\n\n", compiled.target);
    if let Some(memory) = compiled.stand_in {
        line(
            &mut text,
            &format!(
                "No GPU is named, and the workload needs more than `generic` has: these values are for {memory}.\n"
            ),
        );
    }
    for misfit in &compiled.misfits {
        line(&mut text, &format!("`{}` is selected too, but {}.\n", misfit.device, why_not(misfit)));
    }
    if let Some(outdated) = &checked.outdated {
        // A number in brackets would be a link.
        line(&mut text, &format!("{}.\n", outdated.replace('[', "\\[").replace(']', "\\]")));
    }
    let tuned = tuned_settings(model, checked);
    if tuned.is_empty() {
        return text;
    }
    let cells = |values: &Settings| row(tuned.iter().map(|setting| values.get(*setting).to_string()));
    line(&mut text, &format!("| target |{}", row(tuned.iter().map(|setting| format!("`{setting}`")))));
    line(&mut text, &format!("|---|{}", "---|".repeat(tuned.len())));
    line(&mut text, &format!("| `{}` |{}", compiled.target, cells(&compiled.plan.settings)));
    let declared = &checked.input.resolved.declared;
    if declared.iter().any(|id| id.as_str() != compiled.target) {
        line(&mut text, &format!("\n`cargo gpu-tuned plan` plans each of the {} declared targets.", declared.len()));
    }
    text
}

fn why_not(misfit: &Misfit) -> &'static str {
    match misfit.remedies[..] {
        // The pinned settings are the plan of the other targets.
        [Remedy::Unpin { .. }, ..] => "no plan fits it and the others",
        _ => "cannot hold the workload",
    }
}

/// Returns the settings among the struct's fields, in the order of reports.
fn tuned_settings(model: &Model, checked: &Checked) -> Vec<Setting> {
    let has = |setting: &Setting| {
        let is = |role: &Role| matches!(role, Role::Tuned(tuned) if tuned == setting);
        model.fields.iter().zip(&checked.input.roles).any(|(_, role)| is(role))
    };
    Setting::ALL.into_iter().filter(has).collect()
}

fn row(cells: impl Iterator<Item = String>) -> String {
    cells.flat_map(|cell| [" ".to_owned(), cell, " |".to_owned()]).collect()
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("BUG: a String takes every text");
}
