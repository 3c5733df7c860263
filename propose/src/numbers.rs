//! Kind and dimensions of a model in code.

use gpu_tuned_core::workload::ModelKind;
use gpu_tuned_optimize::aliases;
use proc_macro2::{TokenStream, TokenTree};

use crate::burn::{BurnNames, Mixture, Words};
use crate::code::Code;
use crate::sources::Source;

/// Data sets by name: side and channels of images, and classes.
const IMAGES: &[(&str, [u64; 3])] =
    &[("Mnist", [28, 1, 10]), ("FashionMnist", [28, 1, 10]), ("Cifar10", [32, 3, 10]), ("Cifar100", [32, 3, 100])];
/// Vocabulary of tokenizers by name.
const TOKENIZERS: &[(&str, u64)] = &[
    ("bert-base-cased", 28_996),
    ("bert-base-uncased", 30_522),
    ("distilbert-base-uncased", 30_522),
    ("gpt2", 50_257),
    ("roberta-base", 50_265),
];

/// Value of a dimension in an attribute.
pub(super) fn value(kind: &str, dim: &str, code: &Code, chosen: &Code, names: &[&str]) -> Option<String> {
    let count = match (kind, dim) {
        ("convnet", "stages") => return stages(code),
        ("convnet", "image") => images(code).map(|[side, ..]| side),
        (_, "vocab") => vocabulary(code).or_else(|| field(code, chosen, names)),
        ("transformer", "seq") => code.lengths.first().copied().or_else(|| field(code, chosen, names)),
        ("convnet", "channels") => {
            images(code).map(|[_, channels, ..]| channels).or_else(|| field(code, chosen, names))
        }
        (_, "classes") => classes(code, chosen).or_else(|| field(code, chosen, names)),
        _ => field(code, chosen, names),
    };
    count.map(|count| count.to_string())
}

/// Returns true for an optional dimension whose default does not suit what the code has.
pub(super) fn is_needed(kind: &str, dim: &str, code: &Code) -> bool {
    match (kind, dim) {
        ("convnet", "channels") => code.channels().is_none(),
        ("recurrent", "vocab" | "every_step") => code.has("Embedding"),
        _ => false,
    }
}

/// Dimensions that differ from the defaults of the kind.
pub(super) fn extras(kind: &str, code: &Code, chosen: &Code) -> Vec<(&'static str, String)> {
    let mut extras = Vec::new();
    match kind {
        "convnet" => {
            let channels = code.channels().and_then(|channels| channels.first().map(|[from, _]| *from));
            extras
                .extend(channels.filter(|channels| *channels != 3).map(|channels| ("channels", channels.to_string())));
            if code.names.iter().any(|name| name.starts_with("BatchNorm")) {
                extras.push(("batch_statistics", true.to_string()));
            }
        }
        "recurrent" if code.names.iter().any(|name| name.starts_with("BiLstm") || name.starts_with("BiGru")) => {
            extras.push(("bidirectional", true.to_string()));
        }
        "transformer" if code.names.iter().any(|name| name.starts_with("TransformerEncoder")) => {
            extras.extend(classes(code, chosen).map(|classes| ("classes", classes.to_string())));
            if !code.names.iter().any(|name| name.contains("autoregressive")) {
                extras.push(("causal", false.to_string()));
            }
            // Burn's encoder has no final norm.
            extras.push(("final_norm", false.to_string()));
        }
        _ => {}
    }
    if kind == "transformer" && has_own_head(code) && !extras.iter().any(|(dim, _)| *dim == "classes") {
        extras.push(("tied_head", false.to_string()));
    }
    extras
}

/// Returns true if a dense layer has the vocabulary as outputs, apart from the embedding.
fn has_own_head(code: &Code) -> bool {
    let is_vocabulary = |(text, _): &(String, Option<u64>)| text.to_lowercase().contains("vocab");
    code.dense.iter().any(is_vocabulary)
}

/// Number of a config's field with one of these names.
pub(super) fn field(code: &Code, chosen: &Code, names: &[&str]) -> Option<u64> {
    let of = |code: &Code| code.fields.iter().find(|((_, field), _)| names.contains(&field.as_str())).map(|it| *it.1);
    of(chosen).or_else(|| of(code))
}

/// Stages of convolutions: each is a block. Without downsampling, all are one stage with the most channels.
fn stages(code: &Code) -> Option<String> {
    const SHRINKING: [&str; 3] = ["MaxPool2d", "AvgPool2d", "with_stride"];
    let shrinks = code.names.iter().any(|name| SHRINKING.iter().any(|prefix| name.starts_with(prefix)));
    let mut stages: Vec<[u64; 2]> = Vec::new();
    for [_, channels] in code.channels()? {
        match stages.last_mut() {
            Some([widest, blocks]) if !shrinks || *widest == channels => {
                *widest = channels.max(*widest);
                *blocks += 1;
            }
            _ => stages.push([channels, 1]),
        }
    }
    let list: Vec<_> = stages.iter().map(|[channels, blocks]| format!("[{channels}, {blocks}]")).collect();
    (!list.is_empty()).then(|| format!("[{}]", list.join(", ")))
}

fn images(code: &Code) -> Option<[u64; 3]> {
    let is_of =
        |set: &str, name: &String| name.strip_prefix(set).is_some_and(|rest| rest == "Dataset" || rest == "Item");
    IMAGES.iter().find(|(set, _)| code.names.iter().any(|name| is_of(set, name))).map(|(_, known)| *known)
}

fn classes(code: &Code, chosen: &Code) -> Option<u64> {
    let is_count = |name: &str| ["num_classes", "n_classes"].contains(&name.to_lowercase().as_str());
    let counts = || code.constants.iter().filter(|(name, ..)| is_count(name));
    // The data set of the program that trains.
    let meant = counts().find(|(_, of, _)| of.as_ref().is_some_and(|of| chosen.has(of)));
    let value = meant.or_else(|| counts().next()).map(|(.., value)| *value);
    value.or_else(|| field(code, chosen, &["num_classes", "n_classes"])).or_else(|| Some(images(code)?[2]))
}

fn vocabulary(code: &Code) -> Option<u64> {
    TOKENIZERS.iter().find(|(name, _)| code.has("from_pretrained") && code.has(name)).map(|(_, tokens)| *tokens)
}

/// Kind of model that the code indicates.
pub(super) struct Family {
    pub kind: &'static ModelKind,
    /// Name of the indicating module, and its place.
    pub hint: Option<(String, String)>,
    /// The reason why the code indicates no kind, although it has known modules.
    pub doubt: Option<String>,
}

impl Family {
    pub(super) fn new<'s>(sources: impl Iterator<Item = &'s Source>) -> Self {
        let mut names = Vec::new();
        for source in sources {
            collect(source.tokens.clone(), &mut |name, line| names.push((name, format!("{}:{line}", source.name))));
        }
        let hit = |prefixes: &Words| {
            let has_prefix = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
            names.iter().find(|(name, _)| has_prefix(name)).cloned()
        };
        if let Some(doubt) = BurnNames::get().mixture.iter().find_map(|mixture| doubt(mixture, hit)) {
            return Self { kind: undescribed(), hint: None, doubt: Some(doubt) };
        }
        let found = BurnNames::get().kinds().find_map(|(kind, modules)| Some((kind, Some(hit(modules)?))));
        let (kind, hint) = found.unwrap_or_else(|| (undescribed(), None));
        Self { kind, hint, doubt: None }
    }

    /// Names of a dimension in programs, its own first.
    pub(super) fn names_of(&self, dim: &'static str) -> Vec<&'static str> {
        std::iter::once(dim).chain(aliases(self.kind.name, dim)).collect()
    }

    pub(super) fn is_gru(&self) -> bool {
        self.hint.as_ref().is_some_and(|(name, _)| name.contains("Gru"))
    }
}

fn undescribed() -> &'static ModelKind {
    ModelKind::named("declared").expect("BUG: a kind of model")
}

/// The reason why modules of a mixture are no model of one kind, if the code has all of them.
fn doubt(mixture: &Mixture, hit: impl Fn(&Words) -> Option<(String, String)>) -> Option<String> {
    if hit(&mixture.unless).is_some() {
        return None;
    }
    let found: Vec<_> = mixture.parts.iter().map(hit).collect::<Option<_>>()?;
    let places: Vec<_> = found.iter().map(|(name, place)| format!("`{name}` in {place}")).collect();
    let advice = match mixture.like.as_deref().and_then(ModelKind::description_of) {
        Some(keyword) => format!(
            "For {}, write `{keyword}` in place of `declared(…)`. For others, give the costs of a sample.",
            mixture.such
        ),
        None => "Give the costs of a sample.".to_owned(),
    };
    Some(format!("{}: {}. `init` does not read such models. {advice}", places.join(" and "), mixture.model))
}

fn collect(tokens: TokenStream, found: &mut impl FnMut(String, usize)) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => found(ident.to_string(), ident.span().start().line),
            TokenTree::Group(group) => collect(group.stream(), found),
            _ => {}
        }
    }
}
