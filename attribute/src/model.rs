//! The parsed attribute and item, unchecked, with every token's span; their keys and mistakes.

use core::fmt::{Display, Write};

use gpu_tuned_core::dims::{Dim, Schema};
use gpu_tuned_core::workload::{ModelKind, Training};
use gpu_tuned_core::{Goal, Setting, SettingKind, suggest_key};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::{Attribute, DeriveInput, Member, Path, Type, parse_quote};

/// An annotated item.
pub struct Model {
    /// The path of the runtime's crate: that of `crate = path`, else of the package's dependency: `::gpu_tuned`.
    pub root: Path,
    /// `#[allow(deprecated)]`, for an item that may have deprecated parts.
    pub allow: Option<Attribute>,
    /// The arguments of `#[gpu_tuned(…)]`.
    pub arguments: Vec<Argument>,
    /// False if parts of the attribute are no arguments.
    pub has_valid_arguments: bool,
    /// The item without our helper attributes.
    pub item: DeriveInput,
    /// The named fields, in order; empty for other items.
    pub fields: Vec<Field>,
    /// The derives of the item.
    pub derives: Derives,
}

/// `key`, `key = value` or `key(…)`.
#[derive(Clone)]
pub struct Argument {
    /// The key.
    pub key: Ident,
    /// The part behind the key.
    pub value: Value,
}

/// The part behind a key.
#[derive(Clone)]
pub enum Value {
    /// No value.
    Absent,
    /// `= tokens`
    Is(TokenStream),
    /// `(arguments)`
    List(Vec<Argument>),
    /// `(dimension: path = default, …)`
    Nested(Vec<Nested>),
}

/// A dimension in a field of the field's own struct: `layers: n_layers = 4`.
#[derive(Clone)]
pub struct Nested {
    /// The dimension, with its default.
    pub argument: Argument,
    /// The path from the field, such as `n_layers` or `encoder.n_layers`.
    pub path: Vec<Member>,
}

/// The derives that matter here.
#[derive(Default)]
pub struct Derives {
    /// True for any `#[derive]` below the attribute.
    pub any: bool,
    /// Burn's `Config`.
    pub config: DerivePresence,
    /// Clap's `Parser` or `Args`.
    pub clap: DerivePresence,
    /// The `Default` in a derive, or another derive that implements it.
    pub default: Option<Path>,
}

/// Presence of a derive.
#[derive(Clone, Default)]
pub enum DerivePresence {
    /// The derive is absent.
    #[default]
    Never,
    /// The derive is in a `cfg_attr` with this condition.
    If(TokenStream),
    /// The derive is present.
    Always,
}

impl DerivePresence {
    /// Adds a derive with the condition of its `cfg_attr`.
    pub(crate) fn add(&mut self, condition: Option<TokenStream>) {
        *self = match (core::mem::take(self), condition) {
            (Self::Always, _) | (_, None) => Self::Always,
            (Self::Never, Some(condition)) => Self::If(condition),
            (Self::If(first), Some(second)) => Self::If(quote!(any(#first, #second))),
        };
    }

    /// Returns true for a derive without a condition.
    pub fn is_always(&self) -> bool {
        matches!(self, Self::Always)
    }

    /// Returns false for a derive that is absent under every condition.
    pub fn is_possible(&self) -> bool {
        !matches!(self, Self::Never)
    }
}

/// A named field.
pub struct Field {
    /// The field's name.
    pub ident: Ident,
    /// The field's type.
    pub ty: Type,
    /// The `#[cfg(…)]` attributes, those in a `cfg_attr` included.
    pub cfgs: Vec<Attribute>,
    /// The `#[tuned(…)]` attributes.
    pub helpers: Vec<Helper>,
    /// Defaults in attributes of other derives.
    pub defaults: Vec<ForeignDefault>,
    /// True if clap has an `action` or `num_args` for this field.
    pub has_action: bool,
}

/// Form of a setting in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A number or flag.
    Plain,
    /// A precision by its name.
    Text {
        /// True for a `String`.
        is_owned: bool,
    },
    /// A precision as `true` for 16-bit mixed precision.
    Switch,
    /// A precision as a variant: of `Precision`, or of an enum with the usual names.
    Enum,
}

/// One `#[tuned(…)]`.
pub struct Helper {
    /// The path, `tuned`.
    pub path: Path,
    /// The arguments.
    pub arguments: Vec<Argument>,
    /// The condition of the `cfg_attr` around the attribute.
    pub condition: Option<TokenStream>,
}

impl Helper {
    /// Returns true for a field that the plan takes part in: a setting or a dimension.
    pub(crate) fn is_planned(&self) -> bool {
        let is_own = |argument: &Argument| argument.key == "default" || argument.key == PER_RANK;
        self.arguments.is_empty() || !self.arguments.iter().all(is_own)
    }
}

/// A default from another macro's attribute.
pub struct ForeignDefault {
    /// `config`, `arg`, `serde` or another.
    pub attribute: Ident,
    /// `default = 64`
    pub argument: Argument,
    /// The argument with a number or flag in quotes as a bare literal.
    pub unquoted: Argument,
    /// Form of the value.
    pub form: DefaultForm,
    /// True for an attribute in a `cfg_attr`.
    pub is_conditional: bool,
}

/// Form of a default in another macro's attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultForm {
    /// An expression, or an expression in quotes. Without a value, the default of the type.
    Value,
    /// The path of a function, in quotes. Without a value, the default of the type.
    Function,
    /// A default that the attribute cannot read.
    Hidden,
}

impl Argument {
    /// Returns the key without `r#`.
    pub fn name(&self) -> String {
        self.key.unraw().to_string()
    }

    /// Returns the tokens of the value, or the key without a value.
    pub fn place(&self) -> TokenStream {
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
    /// Returns the name without `r#`.
    pub fn name(&self) -> String {
        self.ident.unraw().to_string()
    }

    /// Returns the condition under which the field has its `#[tuned]`; `None` for always.
    pub fn condition(&self) -> Option<&TokenStream> {
        self.helpers.first()?.condition.as_ref()
    }

    /// Returns true for a field whose values may differ between ranks.
    pub fn is_per_rank(&self) -> bool {
        self.helpers.first().is_some_and(|helper| find(&helper.arguments, PER_RANK).is_some())
    }

    /// Returns the condition under which the field is there; `None` for always.
    pub fn presence(&self) -> Option<TokenStream> {
        let conditions: Vec<TokenStream> = self.cfgs.iter().filter_map(|cfg| cfg.parse_args().ok()).collect();
        match &conditions[..] {
            [] => None,
            [only] => Some(only.clone()),
            several => Some(quote!(all(#(#several),*))),
        }
    }

    /// Returns the `cfg`s of statements about the tuned field.
    pub fn guards(&self) -> Vec<Attribute> {
        let condition = self.condition().map(|condition| parse_quote!(#[cfg(#condition)]));
        self.cfgs.iter().cloned().chain(condition).collect()
    }

    /// Returns the type's name without its path.
    pub fn type_name(&self) -> Option<String> {
        let Type::Path(path) = bare(&self.ty) else { return None };
        let last = path.path.segments.last().filter(|last| last.arguments.is_none())?;
        Some(last.ident.to_string())
    }

    /// Returns how the field holds a setting of this kind; `None` for a type that cannot.
    pub fn holder(&self, kind: SettingKind) -> Option<Holder> {
        if let Type::Reference(reference) = bare(&self.ty) {
            let is_text = matches!(&*reference.elem, Type::Path(path) if path.path.is_ident("str"));
            let has_names = matches!(kind, SettingKind::Precision | SettingKind::Kernels);
            return (is_text && has_names).then_some(Holder::Text { is_owned: false });
        }
        let name = self.type_name()?;
        match (kind, name.as_str()) {
            (SettingKind::Count | SettingKind::Flag, name) => {
                kind.field_types().contains(&name).then_some(Holder::Plain)
            }
            (SettingKind::Precision | SettingKind::Kernels, "String") => Some(Holder::Text { is_owned: true }),
            (SettingKind::Precision | SettingKind::Kernels, "bool") => Some(Holder::Switch),
            (SettingKind::Kernels, name) => (name == "Kernels").then_some(Holder::Plain),
            // Only the compiler sees the variants.
            (SettingKind::Precision, name) => name.starts_with(char::is_uppercase).then_some(Holder::Enum),
        }
    }

    /// Returns the setting with the field's name.
    pub(crate) fn setting(&self) -> Option<Setting> {
        Setting::named(&self.name())
    }
}

/// Strips parentheses and the invisible group of a `$t:ty` in `macro_rules!`.
pub fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        _ => ty,
    }
}

/// The keys of the model; exactly one is given.
pub(crate) fn model_keys() -> impl Iterator<Item = &'static str> {
    core::iter::once("workload").chain(ModelKind::ALL.iter().map(|kind| kind.name))
}

/// The keys of `#[gpu_tuned(…)]`.
pub(crate) fn attribute_keys() -> Vec<&'static str> {
    let names = |dims: &'static [Dim]| dims.iter().map(|dim| dim.name);
    model_keys().chain(names(Goal::DIMS)).chain(names(Training::DIMS)).chain(["target", "crate"]).collect()
}

/// Returns true for a key of an attribute, or of the list of a model.
pub(crate) fn is_known_key(name: &str) -> bool {
    attribute_keys().contains(&name) || FIELD_KEYS.contains(&name) || of_models().any(|dim| dim.name == name)
}

/// The dimensions of the model in an attribute.
fn of_given_model(arguments: &[Argument]) -> impl Iterator<Item = &'static Dim> {
    arguments.iter().filter_map(|argument| ModelKind::named(&argument.name())).flat_map(|kind| kind.dims)
}

/// The dimensions of all kinds of models.
fn of_models() -> impl Iterator<Item = &'static Dim> {
    ModelKind::ALL.iter().flat_map(|kind| kind.dims)
}

/// The keys of `#[tuned(…)]`.
pub(crate) const FIELD_KEYS: [&str; 5] = ["setting", "dim", "dims", "default", PER_RANK];

/// The key of a field whose values may differ between ranks.
pub(crate) const PER_RANK: &str = "per_rank";

/// Reports unknown keys of `owner`, and keys given twice.
pub(crate) fn check_keys(arguments: &[Argument], owner: &str, known: &[&str], mistakes: &mut Mistakes) {
    for (index, argument) in arguments.iter().enumerate() {
        let name = argument.name();
        if !known.contains(&name.as_str()) {
            let near = suggest_key(&name, known);
            let mistake = mistakes.at(&argument.key, format!("`{owner}` does not take `{name}`{near}"));
            if ModelKind::named(owner).is_some() && attribute_keys().contains(&name.as_str()) {
                mistake.help(format!("write `{name}` beside `{owner}(…)`, not in it"));
            } else if owner == "#[gpu_tuned]" && of_given_model(arguments).any(|dim| dim.name == name) {
                let model = arguments.iter().map(Argument::name).find(|name| ModelKind::named(name).is_some());
                mistake
                    .help(format!("write it in the list of the model: `{}(…, {name} = …)`", model.unwrap_or_default()));
            } else {
                mistake.help(format!("it takes {}", known.join(", ")));
            }
        } else if arguments[..index].iter().any(|earlier| earlier.key == argument.key) {
            mistakes.at(&argument.key, format!("`{name}` is given twice"));
        }
    }
}

/// Returns the first argument with this key.
pub(crate) fn find<'m>(arguments: &'m [Argument], name: &str) -> Option<&'m Argument> {
    arguments.iter().find(|argument| argument.name() == name)
}

/// The mistakes of one item, so that one compilation shows all of them.
#[derive(Default)]
pub struct Mistakes(Vec<Mistake>);

/// A mistake with its place and its advice.
pub struct Mistake {
    place: TokenStream,
    text: String,
}

impl Mistakes {
    /// Adds a mistake. `place` should be the fewest tokens that are wrong; without tokens it is the whole attribute.
    pub fn at(&mut self, place: impl ToTokens, text: impl Display) -> &mut Mistake {
        self.0.push(Mistake { place: place.into_token_stream(), text: text.to_string() });
        self.0.last_mut().expect("BUG: a mistake was just added")
    }

    /// Returns true without mistakes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts the mistakes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The mistakes, in the order they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }
}

impl Mistake {
    /// Adds a line that rustc shows as `= help`.
    pub fn help(&mut self, text: impl Display) -> &mut Self {
        write!(self.text, "\n= help: {text}").expect("BUG: a String takes every text");
        self
    }

    /// The message and its advice, one line each.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place; `None` if the place is the whole attribute.
    pub fn span(&self) -> Option<Span> {
        self.place.clone().into_iter().next().map(|token| token.span())
    }
}

impl ToTokens for Mistakes {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.0.iter().map(|it| syn::Error::new_spanned(&it.place, &it.text).to_compile_error()));
    }
}
