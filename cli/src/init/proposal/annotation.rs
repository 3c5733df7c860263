//! The annotated struct.

use std::ops::Range;

use gpu_tuned_core::dims::{DimKind, Presence};
use gpu_tuned_core::{Setting, SettingKind};
use syn::{Attribute, Expr, Field, Lit, Meta, MetaNameValue, Type, Visibility};

use super::candidate::{Candidate, is_batch};
use super::family::Family;

/// Fields that hold a setting under another name.
const SETTINGS: &[(&str, &str)] = &[
    ("train_batch_size", "batch_size"),
    ("micro_batch_size", "batch_size"),
    ("grad_accumulation_steps", "gradient_accumulation"),
    ("gradient_accumulation_steps", "gradient_accumulation"),
];
/// Names that dimensions have in programs.
const DIMS: &[(&str, &[&str])] = &[
    ("layers", &["n_layers", "num_layers", "n_layer", "num_blocks"]),
    ("d_model", &["hidden_size", "n_embd", "embed_dim", "embedding_dim", "model_dim"]),
    ("heads", &["n_heads", "num_heads", "n_head"]),
    ("d_ff", &["ff_dim", "feed_forward", "intermediate_size"]),
    ("vocab", &["vocab_size", "vocabulary", "n_vocab"]),
    (
        "seq",
        &["max_seq_length", "seq_length", "seq_len", "sequence_length", "context_length", "max_seq_len", "block_size"],
    ),
    ("hidden", &["hidden_size", "hidden_dim", "d_hidden"]),
    ("inputs", &["input_size", "input_dim", "num_features"]),
    ("outputs", &["output_size", "output_dim"]),
    ("classes", &["num_classes", "n_classes"]),
    ("image", &["image_size", "img_size", "patch_size"]),
];
/// What stands for a figure that only the user knows.
const UNKNOWN: &str = "…";

/// A source with the annotation, and what is to be said of it.
pub(super) struct Annotated {
    pub text: String,
    pub help: Vec<String>,
}

/// What the annotation needs.
#[derive(Default)]
struct Annotation {
    /// What replaces what, by bytes.
    edits: Vec<(Range<usize>, String)>,
    help: Vec<String>,
    /// The settings that fields hold.
    settings: Vec<Setting>,
    /// The dimensions that fields hold.
    dims: Vec<&'static str>,
    global_batch: Option<u64>,
}

/// Annotates the candidate in its source.
pub(super) fn of(text: &str, candidate: &Candidate<'_>, family: &Family, krate: &str) -> Annotated {
    let mut annotation = Annotation::default();
    for (field, name) in candidate.fields() {
        if let Some(setting) = setting(&name, &field.ty).filter(|setting| !annotation.settings.contains(setting)) {
            annotation.setting(text, candidate, field, (&name, setting));
        } else if let Some(dim) = dimension(&name, family).filter(|dim| !annotation.dims.contains(dim)) {
            annotation.dimension(text, field, &name, dim);
        }
    }
    annotation.head(text, candidate, family, krate);
    let mut text = text.to_owned();
    annotation.edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    for (range, new) in annotation.edits {
        text.replace_range(range, &new);
    }
    Annotated { text, help: annotation.help }
}

impl Annotation {
    /// A field that is planned.
    fn setting(&mut self, text: &str, candidate: &Candidate<'_>, field: &Field, (name, setting): (&str, Setting)) {
        self.settings.push(setting);
        let setting = setting.to_string();
        let ours = if name == setting { "#[tuned]".to_owned() } else { format!("#[tuned(setting = {setting})]") };
        let theirs = field.attrs.iter().find(|attribute| attribute.path().is_ident("config"));
        if is_batch(name) {
            self.global_batch = theirs.and_then(default).and_then(|value| count(&value));
        }
        if let Some(theirs) = theirs {
            // The build plans it, so that it has no default of its own.
            self.edits.push((range(theirs), ours));
            return;
        }
        self.above(text, field, &ours);
        if candidate.is_burn() {
            let name_of_config = &candidate.item.ident;
            self.help.push(format!("`{name_of_config}::new` takes `{name}` no more: it has a default now"));
        }
        if field.attrs.iter().any(|attribute| attribute.path().is_ident("arg")) {
            self.help.push(format!("drop the default of `{name}` from its `#[arg(…)]`: the build plans it"));
        }
    }

    /// A field that holds a dimension of the model.
    fn dimension(&mut self, text: &str, field: &Field, name: &str, dim: &'static str) {
        self.dims.push(dim);
        let has_default = field.attrs.iter().any(|attribute| default(attribute).is_some());
        if has_default {
            return self.above(text, field, &format!("#[tuned(dim = {dim})]"));
        }
        self.above(text, field, &format!("#[tuned(dim = {dim}, default = {UNKNOWN})]"));
        self.help.push(format!("`{name}`: in place of {UNKNOWN}, the value that most runs have"));
    }

    /// The attribute above the derives.
    fn head(&mut self, text: &str, candidate: &Candidate<'_>, family: &Family, krate: &str) {
        let mut inside: Vec<String> = Vec::new();
        for dim in family.kind.dims.iter().filter(|dim| dim.presence == Presence::Required) {
            if !self.dims.contains(&dim.name) {
                inside.push(format!("{} = {UNKNOWN}", dim.name));
                self.help.push(format!("`{}`: {}", dim.name, dim.meaning));
            }
        }
        if family.is_gru() {
            inside.push("cell = \"gru\"".to_owned());
        }
        let model = format!("{}({})", family.kind.name, inside.join(", "));
        let goal = self.global_batch.map(|samples| format!(", global_batch = {samples}")).unwrap_or_default();
        let attribute = format!("#[{}::gpu_tuned({model}{goal})]", krate.replace('-', "_"));
        let start = candidate.item.attrs.iter().find(|attribute| !attribute.path().is_ident("doc"));
        let start = start.map_or_else(
            || start_of(&candidate.item.vis, candidate.item.struct_token.span),
            |attribute| range(attribute).start,
        );
        self.edits.push((start..start, above(text, start, &attribute)));
        self.help.push(match &family.hint {
            Some((name, place)) => format!("`{}` because of `{name}` in {place}", family.kind.name),
            None => {
                "nothing in the code says what kind of model it is: state what a sample costs, or use another keyword"
                    .to_owned()
            }
        });
    }

    fn above(&mut self, text: &str, field: &Field, attribute: &str) {
        let first = field.attrs.iter().find(|attribute| !attribute.path().is_ident("doc"));
        let ident = field.ident.as_ref().expect("BUG: candidates have named fields");
        let start = first.map_or_else(|| start_of(&field.vis, ident.span()), |attribute| range(attribute).start);
        self.edits.push((start..start, above(text, start, attribute)));
    }
}

/// An attribute on a line of its own, where what it is for begins a line.
fn above(text: &str, start: usize, attribute: &str) -> String {
    let line = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let indent = &text[line..start];
    if indent.trim().is_empty() { format!("{attribute}\n{indent}") } else { format!("{attribute} ") }
}

fn start_of(visibility: &Visibility, or: proc_macro2::Span) -> usize {
    let span = match visibility {
        Visibility::Public(token) => token.span,
        Visibility::Restricted(restricted) => restricted.pub_token.span,
        Visibility::Inherited => or,
    };
    span.byte_range().start
}

fn range(attribute: &Attribute) -> Range<usize> {
    attribute.pound_token.span.byte_range().start..attribute.bracket_token.span.close().byte_range().end
}

/// The setting that a field holds.
fn setting(name: &str, ty: &Type) -> Option<Setting> {
    let name = SETTINGS.iter().find(|(other, _)| *other == name).map_or(name, |(_, setting)| setting);
    let setting = Setting::ALL.into_iter().find(|setting| setting.to_string() == name)?;
    let Type::Path(path) = ty else { return None };
    let ty = path.path.get_ident()?.to_string();
    let fits = match setting.kind() {
        SettingKind::Count => ["usize", "u32", "u64", "i32", "i64"].contains(&ty.as_str()),
        SettingKind::Flag => ty == "bool",
        SettingKind::Precision => ty == "Precision",
    };
    fits.then_some(setting)
}

/// The dimension that a field holds: one of the family's that fields can hold.
fn dimension(name: &str, family: &Family) -> Option<&'static str> {
    let dims = family.kind.dims.iter().filter(|dim| matches!(dim.kind, DimKind::Count(_)));
    let is_named = |dim: &str| {
        let others = DIMS.iter().find(|(known, _)| *known == dim).map(|(_, others)| *others);
        dim == name || others.is_some_and(|others| others.contains(&name))
    };
    dims.map(|dim| dim.name).find(|dim| is_named(dim))
}

/// The default that an attribute of Burn gives.
fn default(attribute: &Attribute) -> Option<Expr> {
    let Meta::List(list) = &attribute.meta else { return None };
    if !attribute.path().is_ident("config") {
        return None;
    }
    let value: MetaNameValue = list.parse_args().ok()?;
    value.path.is_ident("default").then_some(value.value)
}

fn count(value: &Expr) -> Option<u64> {
    let Expr::Lit(literal) = value else { return None };
    match &literal.lit {
        Lit::Int(number) => number.base10_parse().ok(),
        // Older configs have their defaults in quotes.
        Lit::Str(text) => text.value().parse().ok(),
        _ => None,
    }
}
