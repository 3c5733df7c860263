//! Strategies for attributes and items, mostly plausible, partly not.

use gpu_tuned_core::dims::{Dim, DimKind, Presence, Schema};
use gpu_tuned_core::workload::{ModelKind, Training};
use gpu_tuned_core::{Goal, Setting};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;

const LITERALS: &str = r##"
    0 1 64 6 -1 007 1_000 0xff 0b1 64usize 1e3 1e400 3e-4 0.5f32 1. 340282366920938463463374607431768211456
    18446744073709551616 18446744073709551615 9223372036854775808 true false "f32" "" "\u{1F600}" b"bytes" c"c"
    'c' b'c' 'static "64" "bf16_params" r#"raw"text"#
"##;
const PUNCTUATION: &str = "= == => -> < > :: : ; . .. ..= ! ? # #! $ & && | - + @ ,";
const WORDS: &str = "batch_size layers default setting dim tuned config r#type r#layers r#workload self Self crate _ fn unsafe \
    größe transformer lr optimizer";
const TYPES: [&str; 28] = [
    "usize",
    "u32",
    "u64",
    "i32",
    "i64",
    "bool",
    "Precision",
    "f64",
    "::gpu_tuned::Precision",
    "Option<T>",
    "&'a str",
    "[T; N]",
    "dyn Fn(T) + Send",
    "impl Into<T> + 'a",
    "fn(T) -> u8",
    "(T, u8)",
    "HashMap<String, Vec<T>>",
    "Box<dyn Fn(T) -> T + Send>",
    "!",
    "_",
    "*const T",
    "kind!(T)",
    "<T as Iterator>::Item",
    "usize<>",
    "r#usize",
    "none!{usize}",
    "for<'b> fn(&'b T)",
    "(T)",
];
const MODELS: [&str; 9] = [
    "workload = \"digits\"",
    "workload = \"digit\"",
    "transformer(layers = 2, d_model = 128, vocab = 512, seq = 64)",
    "transformer(seq = 64, vocab = 512)",
    "convnet(image = 32, classes = 10, stages = [[16, 1], [32, 2]])",
    "mlp(widths = [784, 10])",
    "unet(image = 64)",
    "recurrent(input = 8, hidden = 64, seq = 32)",
    "declared(parameters = 1000, activation_bytes_per_sample = 10, flops_per_sample = 1e6)",
];
const DERIVES: [&str; 9] = [
    "#[derive(Debug)]",
    "#[derive(Config, Debug)]",
    "#[derive(clap::Parser)]",
    "#[derive(Args, Config)]",
    "#[derive(Default)]",
    "#[cfg_attr(feature = \"x\", derive(Debug))]",
    "#[derive]",
    "#[derive(,)]",
    "",
];
const GENERICS: [&str; 6] =
    ["", "<T>", "<'a, T: Clone + 'a, const N: usize = 3>", "<T = Vec<u8>>", "<T: for<'b> Fn(&'b u8)>", "<>"];
const WHERES: [&str; 4] = ["", "where", "where T: Clone", "where for<'b> &'b T: Copy,"];

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(texts).prop_map(str::to_owned)
}

/// One of some tokens between spaces.
fn token_of(tokens: &'static str) -> impl Strategy<Value = String> {
    select(tokens.split_whitespace().collect::<Vec<_>>()).prop_map(str::to_owned)
}

/// Any tokens.
fn garbage() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        3 => token_of(LITERALS),
        3 => token_of(PUNCTUATION),
        3 => token_of(WORDS),
        1 => one_of(&TYPES),
        1 => "[a-z_]{1,6}",
        1 => (0u8..=255, 0u32..40).prop_map(|(digit, power)| format!("{digit}{}", "0".repeat(power as usize))),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        let around = select(vec![("(", ")"), ("[", "]"), ("{", "}"), ("none!{", "}"), ("", "")]);
        (around, vec(inner, 0..6)).prop_map(|((open, close), parts)| format!("{open} {} {close}", parts.join(" ")))
    })
}

/// A value of the dimension's kind, in most cases.
fn value(kind: &'static DimKind) -> BoxedStrategy<String> {
    let count = || prop_oneof![6 => 1u64..2000, 1 => any::<u64>()].prop_map(|count| count.to_string());
    let list = |each: BoxedStrategy<String>| vec(each, 0..4).prop_map(|all| format!("[{}]", all.join(", "))).boxed();
    let good = match kind {
        DimKind::Count(_) => count().boxed(),
        DimKind::Flag => any::<bool>().prop_map(|flag| flag.to_string()).boxed(),
        DimKind::Number(_) => prop_oneof![
            2 => (0.0..1.0).prop_map(|number: f64| format!("{number:?}")),
            1 => any::<f64>().prop_filter("a literal", |number| number.is_finite()).prop_map(|number| format!("{number:?}")),
        ]
        .boxed(),
        DimKind::Choice(choices) => select(choices.names).prop_map(|(name, _)| format!("\"{name}\"")).boxed(),
        DimKind::ChoiceList(choices) => list(select(choices.names).prop_map(|(name, _)| format!("\"{name}\"")).boxed()),
        DimKind::Counts(_) | DimKind::Product => list(count().boxed()),
        DimKind::Stages => list((count(), count()).prop_map(|(a, b)| format!("[{a}, {b}]")).boxed()),
    };
    prop_oneof![12 => good, 1 => garbage()].boxed()
}

fn argument(dim: &'static Dim) -> impl Strategy<Value = String> {
    value(&dim.kind).prop_map(|value| format!("{} = {value}", dim.name))
}

/// A family with dimensions in or out of their ranges.
fn families() -> impl Strategy<Value = String> {
    select(ModelKind::ALL.iter().collect::<Vec<_>>()).prop_flat_map(|kind| {
        let given =
            |dim: &'static Dim| weighted(if dim.presence == Presence::Required { 0.97 } else { 0.15 }, argument(dim));
        let arguments = kind.dims.iter().map(given).collect::<Vec<_>>();
        (arguments, weighted(0.05, garbage())).prop_map(|(arguments, extra)| {
            let list: Vec<_> = arguments.into_iter().flatten().chain(extra).collect();
            format!("{}({})", kind.name, list.join(", "))
        })
    })
}

/// Arguments of `#[gpu_tuned(…)]`.
pub(super) fn attributes() -> impl Strategy<Value = String> {
    let of_dims = |dims: &'static [Dim]| select(dims.iter().collect::<Vec<_>>()).prop_flat_map(argument);
    let targets =
        one_of(&["target = \"h200\"", "target = \"rtx409\"", "target = h200", "target", "target = \"generic\""]);
    let other = prop_oneof![
        4 => of_dims(Goal::DIMS),
        4 => of_dims(Training::DIMS),
        2 => targets,
        1 => (token_of(WORDS), garbage()).prop_map(|(key, value)| format!("{key} = {value}")),
        1 => (token_of(WORDS), garbage()).prop_map(|(key, value)| format!("{key}({value})")),
        1 => garbage(),
    ];
    let model = weighted(0.95, prop_oneof![3 => one_of(&MODELS), 2 => families()]);
    let arguments = (model, vec(other, 0..4))
        .prop_map(|(model, others)| model.into_iter().chain(others).collect::<Vec<_>>().join(", "));
    prop_oneof![12 => arguments, 1 => garbage()]
}

/// Arguments of `#[tuned(…)]`, with the field's name.
fn tuned_fields() -> impl Strategy<Value = (String, String)> {
    let setting = select(Setting::ALL.to_vec()).prop_map(|setting| setting.name().to_owned());
    let dims: Vec<&Dim> = ModelKind::ALL.iter().flat_map(|kind| kind.dims).chain(Training::DIMS).collect();
    let dim = select(dims).prop_flat_map(|dim| value(&dim.kind).prop_map(|value| (dim.name, value)));
    let of_dim = (dim, "[a-z]{1,5}_")
        .prop_map(|((dim, value), field)| (format!("#[tuned(dim = {dim}, default = {value})]"), field));
    prop_oneof![
        4 => setting.clone().prop_map(|field| ("#[tuned]".to_owned(), field)),
        2 => (setting, "[a-z]{1,5}_").prop_map(|(setting, field)| (format!("#[tuned(setting = {setting})]"), field)),
        3 => of_dim,
        1 => (garbage(), "[a-z]{1,5}_").prop_map(|(value, field)| (format!("#[tuned(default = {value})]"), field)),
        1 => (garbage(), one_of(&["r#type", "batch_size", "lr"])).prop_map(|(list, field)| (format!("#[tuned({list})]"), field)),
        1 => (garbage(), Just("lr".to_owned())).prop_map(|(value, field)| (format!("#[tuned = {value}]"), field)),
    ]
}

/// Attributes of other macros.
fn foreign() -> impl Strategy<Value = String> {
    let marks = [
        "",
        "#[cfg(feature = \"x\")]",
        "#[config(default = 64)]",
        "#[arg(long, default_value_t = 3)]",
        "#[arg(default_value = \"3\")]",
        "#[config(default = \"a + b\", default = 2)]",
        "#[tuned]",
        "/// Doc.",
        "#[arg(action = Set)]",
        "#[config]",
        "#[serde(default)]",
    ];
    let with_garbage = (one_of(&["config", "arg", "cfg", "clap", "tuned", "doc"]), garbage())
        .prop_map(|(name, tokens)| format!("#[{name}({tokens})]"));
    prop_oneof![10 => one_of(&["", "", ""]), 6 => select(marks.to_vec()).prop_map(str::to_owned), 1 => with_garbage]
}

fn fields() -> impl Strategy<Value = String> {
    let plain = "[a-z]{1,5}".prop_map(|field| (String::new(), field + "_"));
    let field = prop_oneof![3 => tuned_fields(), 1 => plain];
    let types = prop_oneof![3 => one_of(&["usize", "u64", "bool", "Precision"]), 1 => one_of(&TYPES)];
    (foreign(), field, types).prop_map(|(foreign, (helper, field), ty)| format!("{foreign} {helper} {field}: {ty}"))
}

/// Items below the attribute.
pub(super) fn items() -> impl Strategy<Value = String> {
    let head = (prop_oneof![3 => Just("#[derive(Debug)]".to_owned()), 2 => one_of(&DERIVES)], foreign())
        .prop_map(|(derive, foreign)| format!("{derive} {foreign}"))
        .boxed();
    let generics = (prop_oneof![2 => Just(String::new()), 1 => one_of(&GENERICS)], one_of(&WHERES));
    let named = prop_oneof![
        2 => vec(fields(), 0..6),
        3 => vec(fields(), 0..3).prop_map(|mut fields| {
            fields.push("#[tuned] batch_size: usize".to_owned());
            fields
        })
    ]
    .prop_map(|fields| format!("{{ {} }}", fields.join(", ")));
    let structs = (head.clone(), generics, named, one_of(&["struct", "pub struct", "pub(crate) struct", "union"]))
        .prop_map(|(head, (generics, bounds), fields, keyword)| {
            let bounds = if generics.contains('T') { bounds } else { String::new() };
            format!("{head} {keyword} Config{generics} {bounds} {fields}")
        });
    let others = prop_oneof![
        one_of(&[
            "struct Config;",
            "struct Config(#[tuned] usize);",
            "fn config(#[tuned] a: u8) {}",
            "enum Config {}",
            "enum Config { #[tuned] A { #[tuned] b: usize } }",
            "impl Config {}",
            "mod config;",
            "trait Config {}",
            "type Config = u8;",
            "const CONFIG: u8 = 0;",
            "macro_rules! config { () => {} }",
            "use config;",
            "",
            "struct r#Config { #[tuned] batch_size: usize }",
            "struct Config { #[tuned] batch_size: usize } struct B;"
        ]),
        garbage(),
    ];
    prop_oneof![8 => structs, 1 => (head, others).prop_map(|(head, item)| format!("{head} {item}"))]
}
