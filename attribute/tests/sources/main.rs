//! Annotated structs of a package, whatever file and form they are in.

use std::fs;
use std::path::Path;

use gpu_tuned_attribute::sources::{Annotated, Sources, Target};
use gpu_tuned_attribute::{Role, Table};
use gpu_tuned_core::workload::ModelSpec;
use gpu_tuned_project::resolved::Resolved;
use tempfile::TempDir;

/// A struct with this attribute and name.
fn config(attribute: &str, name: &str) -> String {
    format!("{attribute}\n#[derive(Debug)]\npub struct {name} {{ #[tuned] pub batch_size: usize }}\n")
}

const PLAIN: &str = "#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64)]";

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn read(folder: &Path, roots: &[(&str, &str)]) -> Sources {
    let roots: Vec<_> = roots.iter().map(|(name, root)| (*name, folder.join(root))).collect();
    Sources::read(roots.iter().map(|(name, root)| Target {
        name,
        root,
        is_test: root.starts_with(folder.join("tests")),
    }))
}

/// The structs of a package with this text alone.
fn structs(text: &str) -> Vec<Annotated> {
    read(folder(&[("src/lib.rs", text)]).path(), &[("lm", "src/lib.rs")]).structs
}

fn paths(sources: &Sources) -> Vec<&str> {
    sources.structs.iter().map(|found| found.path.as_str()).collect()
}

fn resolved() -> Table {
    Table::Resolved(Box::new(Resolved::from_builtin("h200").unwrap()))
}

fn global_batch(found: &Annotated) -> Option<u64> {
    found.plan_input(resolved(), "lib.rs").unwrap().goal.global_batch
}

#[test]
fn modules_are_followed_as_rustc_follows_them() {
    let text = |name: &str| config(PLAIN, name);
    let root = "mod a; mod b; mod inline { mod inner; #[path = \"odd.rs\"] mod odd; pub mod deep { mod far; } }\n\
                #[path = \"elsewhere/file.rs\"] mod moved; #[cfg_attr(windows, path = \"w.rs\")] mod os; mod absent;\n\
                #[cfg_attr(true, path = \"yes.rs\")] mod literal;\n\
                #[cfg_attr(unix, cfg_attr(target_os = \"linux\", path = \"l.rs\"))] mod twice;\n\
                #[path = \"dir\"] mod renamed { mod within; pub mod deep { mod far; } } mod plain { mod after; }\n\
                cfg_if! { if #[cfg(unix)] { mod of_macro; } else { mod other; } }\n\
                include!(\"included.rs\"); mod r#type;";
    let folder = folder(&[
        ("src/lib.rs", root),
        (
            "src/a.rs",
            &format!(
                "{}mod child; #[path = \"dir\"] mod r {{ mod too; }} mod s {{ #[path = \"p\"] mod t {{ mod u; }} }}",
                text("A")
            ),
        ),
        ("src/dir/within.rs", &text("Within")),
        ("src/dir/deep/far.rs", &text("Far")),
        ("src/dir/too.rs", &text("Too")),
        ("src/a/s/p/u.rs", &text("Under")),
        ("src/plain/after.rs", &text("After")),
        ("src/of_macro.rs", &text("OfMacro")),
        ("src/a/child.rs", &text("Child")),
        ("src/b/mod.rs", "mod child;"),
        ("src/b/child.rs", &text("Child")),
        ("src/inline/inner.rs", &text("Inner")),
        ("src/inline/odd.rs", &text("Odd")),
        ("src/inline/deep/far.rs", &text("Far")),
        ("src/elsewhere/file.rs", "mod beside;"),
        ("src/elsewhere/beside.rs", &text("Beside")),
        ("src/os.rs", &text("Other")),
        ("src/w.rs", &text("Windows")),
        ("src/yes.rs", &text("Literal")),
        ("src/l.rs", &text("Linux")),
        ("src/included.rs", &text("Included")),
        ("src/type.rs", &text("Raw")),
        ("src/unused.rs", &text("Unused")),
    ]);
    let sources = read(folder.path(), &[("my-crate", "src/lib.rs")]);
    let mut found = paths(&sources);
    found.sort_unstable();
    let expected = [
        "my_crate::Included",
        "my_crate::a::A",
        "my_crate::a::child::Child",
        "my_crate::a::r::too::Too",
        "my_crate::a::s::t::u::Under",
        "my_crate::b::child::Child",
        "my_crate::inline::deep::far::Far",
        "my_crate::inline::inner::Inner",
        "my_crate::inline::odd::Odd",
        "my_crate::literal::Literal",
        "my_crate::moved::beside::Beside",
        "my_crate::of_macro::OfMacro",
        "my_crate::os::Other",
        "my_crate::os::Windows",
        "my_crate::plain::after::After",
        "my_crate::renamed::deep::far::Far",
        "my_crate::renamed::within::Within",
        "my_crate::twice::Linux",
        "my_crate::type::Raw",
    ];
    assert_eq!(found, expected);
    assert!(sources.unread.is_empty(), "{:?}", sources.unread);
}

#[test]
fn the_attribute_is_seen_by_path_by_renamed_import_and_in_cfg_attr() {
    let batch = |path: &str, batch: u32| format!("#[{path}(mlp(widths = [8, 8]), global_batch = {batch})]");
    let conditional = "#[cfg_attr(feature = \"x\", gpu_tuned(mlp(widths = [8, 8]), global_batch = 4), derive(Clone))]";
    let text = [
        "use gpu_tuned::{self as gt, Bytes, gpu_tuned as planned};\nuse tuned::gpu_tuned;\n".to_owned(),
        config(&batch("gpu_tuned::gpu_tuned", 1), "Full"),
        config(&batch("gt::gpu_tuned", 2), "Crate"),
        config(&batch("planned", 3), "Renamed"),
        config(conditional, "Conditional"),
        format!("fn main() {{ {} }}\n", config(&batch("gpu_tuned", 5), "Local")),
        "#[other] #[derive(Debug)] struct Plain { batch_size: usize }\n".to_owned(),
        format!("#[cfg(test)] mod tests {{ {} }}\n", config(PLAIN, "Unit")),
    ];
    let folder = folder(&[("src/main.rs", &text.concat()), ("tests/it.rs", &config(PLAIN, "Test"))]);
    let sources = read(folder.path(), &[("it", "src/main.rs"), ("test", "tests/it.rs"), ("again", "src/main.rs")]);
    assert_eq!(paths(&sources), ["it::Full", "it::Crate", "it::Renamed", "it::Conditional", "it::Local", "test::Test"]);
    let batches: Vec<_> = sources.structs.iter().map(global_batch).collect();
    assert_eq!(batches, [1, 2, 3, 4, 5, 64].map(Some));
    let is_test: Vec<_> = sources.structs.iter().map(|found| found.is_test).collect();
    assert_eq!(is_test, [false, false, false, false, false, true]);
}

#[test]
fn fields_with_dimensions_are_read_with_their_defaults() {
    let text = "#[gpu_tuned(transformer(seq = 256, vocab = 8192), global_batch = samples)]\n\
                #[derive(Config, Debug)]\nstruct LmConfig {\n\
                #[tuned(dim = layers, default = 6)] n_layers: usize,\n\
                #[tuned(dims(d_model = 512, heads: n_heads = 8))] model: Model,\n\
                #[config(default = 96)] samples: usize,\n}\n";
    let input = structs(text)[0].plan_input(resolved(), "src/lib.rs").unwrap();
    let ModelSpec::Transformer(lm) = input.spec.model else { panic!("{:?}", input.spec) };
    assert_eq!((lm.layers, lm.d_model, lm.heads, lm.seq), (6, 512, Some(8), 256));
    assert_eq!(input.goal.global_batch, Some(96));
}

#[test]
fn a_mistake_has_the_macros_message_and_its_place() {
    let text = "\u{feff}// ä\r\n#[gpu_tuned(mlp(widths = [8, 8]), globl_batch = 64)]\r\n#[derive(Debug)]\r\nstruct C {\r\n    \
                #[tuned]\r\n    batch_sise: usize,\r\n}\r\n";
    let found = structs(text).swap_remove(0);
    let mistakes = found.plan_input(resolved(), "src/lib.rs").err().unwrap();
    let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
    assert!(
        lines[0].starts_with("src/lib.rs:2:35: `#[gpu_tuned]` does not take `globl_batch`; did you mean"),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("src/lib.rs:6:5: there is no setting `batch_sise`; did you mean"), "{lines:?}");
    let absent = found.plan_input(Table::Absent, "src/lib.rs").err().unwrap();
    assert!(
        absent.iter().any(|mistake| mistake.to_string().starts_with("src/lib.rs:2:3: `#[gpu_tuned]` has no target"))
    );
}

#[test]
fn a_struct_of_a_macro_and_a_broken_file_are_named_with_their_lines() {
    let text = "mod broken;\nmacro_rules! config { ($name:ident) => {\n    #[gpu_tuned(mlp(widths = [8, 8]))]\n    \
                #[derive(Debug)] struct $name { #[tuned] batch_size: usize } } }\nconfig!(Made);\n";
    let folder = folder(&[("src/lib.rs", text), ("src/broken.rs", "fn main() {\n    let = 1;\n}\n")]);
    let sources = read(folder.path(), &[("lm", "src/lib.rs")]);
    assert!(sources.structs.is_empty());
    let unread: Vec<_> = sources.unread.iter().map(|unread| (unread.line, unread.why.as_str())).collect();
    assert_eq!(unread[0], (Some(3), "a macro makes the annotated struct"));
    assert_eq!(unread[1].0, Some(2), "{unread:?}");
}

#[test]
fn the_defaults_of_other_derives_are_read_by_the_names_of_their_attributes() {
    let refused = |attributes: &str| {
        let text = format!("{PLAIN}\n#[derive(Debug)]\nstruct C {{\n{attributes}\n#[tuned] batch_size: usize }}");
        structs(&text)[0].plan_input(resolved(), "src/lib.rs").is_err()
    };
    for name in ["arg", "clap", "structopt"] {
        for key in ["default_value", "default_value_t", "default_values_t", "default_value_os"] {
            assert!(refused(&format!("#[{name}(long, {key} = 3)]")), "{name}: {key}");
        }
        assert!(!refused(&format!("#[{name}(long)]")), "{name}");
    }
}

/// The mistakes of a struct with these arguments of the attribute.
fn mistakes(attribute: &str) -> Vec<String> {
    let text = format!("#[gpu_tuned({attribute})]\n#[derive(Debug)]\nstruct C {{ #[tuned] batch_size: usize }}");
    let mistakes = structs(&text)[0].plan_input(resolved(), "lib.rs").err().unwrap_or_default();
    mistakes.iter().map(|mistake| mistake.message.clone()).collect()
}

#[test]
fn mistakes_in_values_have_the_value_to_write() {
    let transformer =
        |layers: &str| mistakes(&format!("transformer(layers = {layers}, d_model = 64, vocab = 9, seq = 8)"));
    let whole = "`layers` takes a literal whole number";
    assert_eq!(transformer("2_usize"), [""; 0]);
    for (layers, advice) in [
        ("64f32", "; write it without a suffix: 64"),
        ("64px", "; write it without a suffix: 64"),
        ("2.0", "; write it without a point, an exponent or a suffix: 2"),
        ("-2.0", ""),
        ("-0.0", ""),
        ("\"-2\"", ""),
        ("2.5", ""),
        ("1e300", ""),
    ] {
        assert_eq!(transformer(layers), [format!("{whole}{advice}")], "{layers}");
    }
    assert_eq!(mistakes("mlp(widths = [8, 8]), crate(gpu_tuned)"), ["expected `crate = value`"]);
    for number in ["1e300", "1e999", "-1e300"] {
        let shown = if number == "1e999" { "inf" } else { number };
        let message = format!("memory_headroom = {shown} is out of range, expected 0 to 0.9");
        assert_eq!(mistakes(&format!("mlp(widths = [8, 8]), memory_headroom = {number}")), [message]);
    }
    assert_eq!(mistakes("mlp(widths = [8, 8]) world_size = 2"), ["a comma is missing before `world_size`"]);
}

#[test]
fn commas_of_closures_and_of_generic_types_end_no_argument() {
    let defaults = [
        "|a, b| a + b",
        "|x: Result<u8, u16>| -> Option<(u8, u16)> { None }",
        "None as Option<Result<u8, ()>>",
        "HashMap::<u8, [u8; 2]>::new()",
        "<Pair<u8, u16> as Default>::default()",
        "(1 < 2) | (3 > 2)",
        "a < b",
    ];
    for default in defaults {
        let text = format!(
            "{}\n#[derive(Debug)]\nstruct C {{ #[arg(value_parser = |a, b| a, default_value_t = 6)] \
             #[tuned(dim = layers)] layers: u32, #[tuned(default = {default}, per_rank,)] own: u8, #[tuned] batch_size: usize }}",
            "#[gpu_tuned(transformer(d_model = 64, vocab = 100, seq = 16), global_batch = 64,)]"
        );
        let input = structs(&text)[0].plan_input(resolved(), "lib.rs").expect(default);
        let Role::Untouched(Some(read)) = &input.roles[1] else { panic!("{default}") };
        assert_eq!(read.to_string(), default.parse::<proc_macro2::TokenStream>().expect("tokens").to_string());
        let ModelSpec::Transformer(model) = &input.spec.model else { panic!("a transformer") };
        assert_eq!(model.layers, 6);
    }
    // What is no expression swallows no other argument.
    for (open, message) in [
        ("global_batch = |a, world_size = 2", "`global_batch` takes a literal whole number"),
        ("global_batch = 64,, world_size = 2", "expected `key = value`"),
        ("global_batch = (64)", "`global_batch` takes a literal whole number"),
    ] {
        assert_eq!(mistakes(&format!("mlp(widths = [8, 8]), {open}")), [message], "{open}");
    }
}

#[test]
fn names_in_patterns_of_a_default_are_no_keys() {
    let text = format!(
        "{PLAIN}\n#[derive(Debug)]\nstruct C {{\n#[tuned(default = if let None = LIMIT {{ 1 }} else {{ 2 }})] rate: u8,\n\
         #[tuned] batch_size: usize }}"
    );
    assert_eq!(global_batch(&structs(&text)[0]), Some(64));
}
