use gpu_tuned_core::dims::named;
use gpu_tuned_project::config::workload_from_words;

use super::*;
use crate::code::Own;
use crate::losses::Losses;

#[test]
fn every_kind_exists_and_each_mixture_is_described() {
    let names = BurnNames::get();
    assert_eq!(names.kinds().count(), names.modules.len());
    for mixture in &names.mixture {
        let Some(like) = &mixture.like else { continue };
        assert!(ModelKind::description_of(like).is_some(), "{like}");
        assert!(!mixture.such.is_empty(), "{like}");
    }
}

#[test]
fn arguments_of_configs_are_dimensions() {
    for (_, dim) in BurnNames::get().config.iter().flat_map(|config| &config.fields) {
        assert!(ModelKind::ALL.iter().any(|kind| named(kind.dims, dim).is_some()), "{dim}");
    }
}

#[test]
fn optimizers_are_found_by_their_configs() {
    let names = BurnNames::get();
    assert_eq!(names.optimizer("AdamWConfig"), Some(Some(Optimizer::AdamW)));
    assert_eq!(names.optimizer("LionConfig"), Some(None));
    assert_eq!(names.optimizer("MomentumConfig"), None);
}

fn naming(names: &[&str]) -> Code {
    let mut code = Code::default();
    code.names.extend(names.iter().map(|name| (*name).to_owned()));
    code
}

fn found(names: &[&str]) -> Annotated {
    optimizer_in(&naming(names), &Code::default())
}

#[test]
fn the_optimizer_is_the_one_that_the_code_names() {
    assert_eq!(found(&["Linear"]), Annotated::Default);
    assert_eq!(found(&["AdamWConfig"]), Annotated::Default);
    assert_eq!(found(&["AdamConfig"]), Annotated::Other(Optimizer::Adam));
    assert_eq!(found(&["SgdConfig"]), Annotated::Other(Optimizer::Sgd));
    assert_eq!(found(&["SgdConfig", "MomentumConfig"]), Annotated::Other(Optimizer::Momentum));
    assert_eq!(found(&["AdamWConfig", "MuonConfig"]), Annotated::Other(Optimizer::Muon));
}

#[test]
fn the_program_that_trains_has_precedence() {
    let rest = naming(&["SgdConfig", "AdamConfig"]);
    assert_eq!(optimizer_in(&rest, &naming(&["AdamConfig"])), Annotated::Other(Optimizer::Adam));
    let Annotated::Open(help) = optimizer_in(&rest, &Code::default()) else { panic!("one is chosen") };
    assert!(help.contains("of `SgdConfig`, `AdamConfig`"), "{help}");
}

#[test]
fn an_optimizer_that_the_planner_lacks_gets_a_note() {
    let Annotated::Open(help) = found(&["LionConfig"]) else { panic!("it is planned") };
    assert_eq!(help, "the planner has no `LionConfig`: plans assume adamw until it is measured");
}

/// Attributes of the dimensions in a config of type `S0`.
fn attributes(structs: &str) -> Vec<String> {
    let own = |item| match item {
        syn::Item::Struct(item) => Own { name: item.ident.to_string(), file: "a.rs".to_owned(), item },
        _ => panic!("no struct"),
    };
    let items = syn::parse_file(structs).expect("Rust").items;
    let mut code = Code::default();
    code.own.extend(items.into_iter().map(own));
    let family = Family { kind: ModelKind::named("transformer").expect("a kind"), hint: None, doubt: None };
    let given = Given {
        sources: &[],
        training: None,
        program: None,
        reached: Vec::new(),
        family,
        code,
        chosen: Code::default(),
        losses: Losses::default(),
        krate: "gpu_tuned",
    };
    nested_dims(&syn::parse_str("S0").expect("a type"), "a.rs", &given).iter().map(NestedDim::to_attribute).collect()
}

#[test]
fn every_struct_is_looked_at_once() {
    let of = |name: &str, of: &str| {
        let fields: String = (0..3_000).map(|field| format!("f{field}: {of}, ")).collect();
        format!("struct {name} {{ {fields} }}")
    };
    let last = "struct S3 { #[config(default = 8)] n_layers: usize }";
    let text = [of("S0", "S1"), of("S1", "S2"), of("S2", "u8"), last.to_owned()].concat();
    assert!(attributes(&text).is_empty());
    let text = text.replace("u8", "S1").replace("f2999: S1", "n: S3");
    assert_eq!(attributes(&text), ["layers: n.n_layers = 8"]);
}

#[test]
fn a_shorter_path_reaches_deeper_structs() {
    let text = "struct S0 { a: A, d: D } struct A { b: B } struct B { d: D }
        struct D { e: E } struct E { #[config(default = 8)] n_layers: usize }";
    assert_eq!(attributes(text), ["layers: d.e.n_layers = 8"]);
}

#[test]
fn examples_describe_a_model_of_each_kind() {
    for kind in ModelKind::ALL {
        let family = Family { kind, hint: Some(("Module".to_owned(), "src/main.rs:1".to_owned())), doubt: None };
        let code = Code::default();
        let words = ModelWords::new(&family, (&code, &code), &BTreeMap::new(), None);
        assert_eq!(words.is_none(), kind.name == "declared");
        let Some(words) = words else { continue };
        let parsed = workload_from_words(&words.model, &[]);
        assert!(parsed.is_ok_and(|(name, _)| name == kind.name), "{}", words.model);
        assert!(!words.examples.is_empty(), "{}", words.model);
    }
}

#[test]
fn numbers_of_fields_replace_examples() {
    let family = Family { kind: ModelKind::named("transformer").expect("a kind"), hint: None, doubt: None };
    let fields = BTreeMap::from([("layers", 12), ("d_model", 768), ("seq", 1024)]);
    let words = ModelWords::new(&family, (&Code::default(), &Code::default()), &fields, Some(64));
    let words = words.expect("a model");
    assert_eq!(words.examples, ["vocab"]);
    let model = "transformer(layers = 12, d_model = 768, vocab = 32_000, seq = 1024)";
    assert_eq!(words.command("h200"), format!("cargo gpu-tuned plan h200 --model '{model}' --global-batch 64"));
}

fn number(text: &str, names: &[&str]) -> Option<u64> {
    let sources = [Source::of_text("src/main.rs", text)];
    let values = std::rc::Rc::new(code::Values::new(sources.iter()));
    field(&Code::new(sources.iter(), &values), &Code::default(), names)
}

#[test]
fn numbers_are_those_that_are_set_else_defaults_else_constants() {
    let names = ["seq_length", "seq_len"];
    let config = "#[derive(Config)] struct C { #[config(default = 64)] seq_len: usize }";
    let constant = "const SEQ_LENGTH: usize = 10; fn f() { load(SEQ_LENGTH); }";
    assert_eq!(number(config, &names), Some(64));
    assert_eq!(number(constant, &names), Some(10));
    assert_eq!(number(&[config, constant].concat(), &names), Some(64));
    assert_eq!(number(&format!("{config} fn f() {{ C::new().with_seq_len(128); }}"), &names), Some(128));
    // A number that only a run has is none of the defaults and constants.
    assert_eq!(number(&format!("{config} fn f() {{ C::new().with_seq_len(read()); }}"), &names), None);
    // Two configs with different numbers.
    let other = "#[derive(Config)] struct D { #[config(default = 32)] seq_len: usize }";
    assert_eq!(number(&[config, other].concat(), &names), None);
    // A constant of a single word.
    assert_eq!(number("const DIM: usize = 3; fn f() { rank(DIM); }", &["dim"]), None);
}
