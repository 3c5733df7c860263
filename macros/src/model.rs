//! What the user wrote, with every token's place, before anything is known to be right.

use gpu_tuned_core::{Setting, SettingKind};
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::{Attribute, DeriveInput, Member, Type};

/// An annotated item.
pub(crate) struct Model {
    /// What stands in `#[gpu_tuned(…)]`.
    pub arguments: Vec<Argument>,
    /// The item without our helper attributes.
    pub item: DeriveInput,
    /// Its named fields, in order; none when it is no such struct.
    pub fields: Vec<Field>,
    /// What it derives.
    pub derives: Derives,
}

/// `key`, `key = value` or `key(…)`.
pub(crate) struct Argument {
    pub key: Ident,
    pub value: Value,
}

/// What follows a key.
pub(crate) enum Value {
    /// Nothing.
    Absent,
    /// `= tokens`
    Is(TokenStream),
    /// `(arguments)`
    List(Vec<Argument>),
    /// `(dimension: path = default, …)`
    Nested(Vec<Nested>),
}

/// A dimension in a field of the field's own struct: `layers: n_layers = 4`.
pub(crate) struct Nested {
    /// The dimension, with its default.
    pub argument: Argument,
    /// The way to it from the field, such as `n_layers` or `encoder.n_layers`.
    pub path: Vec<Member>,
}

/// The derives that matter here.
#[derive(Default)]
pub(crate) struct Derives {
    /// Whether there is any `#[derive]` below the attribute.
    pub any: bool,
    /// Burn's `Config`.
    pub config: bool,
    /// Clap's `Parser` or `Args`.
    pub clap: bool,
    /// The `Default` in a derive.
    pub default: Option<syn::Path>,
}

/// A field.
pub(crate) struct Field {
    pub ident: Ident,
    pub ty: Type,
    /// Its `#[cfg(…)]` attributes.
    pub cfgs: Vec<Attribute>,
    /// Its `#[tuned(…)]` attributes.
    pub helpers: Vec<Helper>,
    /// Defaults that it has from Burn or clap.
    pub defaults: Vec<ForeignDefault>,
    /// Whether clap was told how to take its value.
    pub has_action: bool,
}

/// One `#[tuned(…)]`.
pub(crate) struct Helper {
    pub path: syn::Path,
    pub arguments: Vec<Argument>,
}

/// A default that another macro's attribute gives to a field.
pub(crate) struct ForeignDefault {
    /// `config`, `arg` or `clap`.
    pub attribute: Ident,
    /// `default = 64`
    pub argument: Argument,
}

impl Argument {
    /// The key without `r#`.
    pub(crate) fn name(&self) -> String {
        self.key.unraw().to_string()
    }

    /// Where to point when the value is wrong: at it, or at the key when there is none.
    pub(crate) fn place(&self) -> TokenStream {
        match &self.value {
            Value::Is(tokens) => tokens.clone(),
            Value::Absent | Value::List(_) | Value::Nested(_) => self.key.to_token_stream(),
        }
    }
}

impl ToTokens for Argument {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { key, value } = self;
        tokens.extend(match value {
            Value::Absent => quote!(#key),
            Value::Is(value) => quote!(#key = #value),
            Value::List(list) => quote!(#key(#(#list),*)),
            Value::Nested(dims) => {
                let dims = dims.iter().map(|Nested { argument, path }| {
                    let Argument { key, value } = argument;
                    let default = if let Value::Is(value) = value { Some(quote!(= #value)) } else { None };
                    quote!(#key: #(#path).* #default)
                });
                quote!(#key(#(#dims),*))
            }
        });
    }
}

impl Field {
    /// The name without `r#`.
    pub(crate) fn name(&self) -> String {
        self.ident.unraw().to_string()
    }

    /// The type's name without its path.
    pub(crate) fn type_name(&self) -> Option<String> {
        let Type::Path(path) = bare(&self.ty) else { return None };
        let last = path.path.segments.last().filter(|last| last.arguments.is_none())?;
        Some(last.ident.to_string())
    }

    /// The setting that the field's name stands for.
    pub(crate) fn setting(&self) -> Option<Setting> {
        Setting::named(&self.name())
    }
}

/// A type without parentheses around it, and without the group that `macro_rules!` puts a `$t:ty` into.
pub(crate) fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        _ => ty,
    }
}

/// The field types that hold a kind of value.
pub(crate) fn types_of(kind: SettingKind) -> &'static [&'static str] {
    match kind {
        SettingKind::Count => &["usize", "u32", "u64", "i32", "i64"],
        SettingKind::Flag => &["bool"],
        SettingKind::Precision => &["Precision"],
    }
}
