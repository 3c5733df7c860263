//! The `config_file(…)` of build scripts.

use std::fs;
use std::path::PathBuf;

use gpu_tuned_attribute::sources::config_file;

use super::folder;

/// Reads `config_file(…)` of a script with this statement in `main`, and these items.
fn script(statement: &str, items: &str) -> Result<Option<PathBuf>, String> {
    let text = format!("fn main() {{\n    {statement}\n}}\n{items}\n");
    let call = |file: &str| format!("pub fn tune() {{ gpu_tuned_build::configure().config_file(\"{file}\").emit(); }}");
    let folder = folder(&[
        ("build.rs", &text),
        ("helper.rs", &call("of-helper.toml")),
        ("around.rs", "pub mod around;"),
        ("around/around.rs", &call("of-nested.toml")),
        ("build/moved.rs", &call("of-moved.toml")),
        ("broken.rs", "fn main() {\n    let = 1;\n}\n"),
    ]);
    let path = folder.path().join("build.rs");
    config_file(&path).map_err(|error| error.to_string().replace(&folder.path().display().to_string(), ""))
}

#[test]
fn the_file_of_a_build_script_is_read_in_the_usual_forms() {
    assert_eq!(script("gpu_tuned_build::configure().emit();", ""), Ok(None));
    let items = "const FILE: &str = \"../my.toml\";";
    for argument in [
        "\"../my.toml\"",
        "Path::new(\"../my.toml\")",
        "Path::new(\"..\").join(\"my.toml\")",
        "\"../my.toml\".to_owned()",
        "&String::from(\"../my.toml\")",
        "FILE",
        "PathBuf::from(FILE)",
        "concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../my.toml\")",
        "Path::new(env!(\"CARGO_MANIFEST_DIR\")).join(\"../my.toml\")",
        "PathBuf::from(std::env::var_os(\"CARGO_MANIFEST_DIR\").unwrap()).join(\"../my.toml\")",
    ] {
        let read = script(&format!("configure().require_single_target().config_file({argument}).emit();"), items);
        assert_eq!(read, Ok(Some("../my.toml".into())), "{argument}");
    }
    for statement in [
        "let file = \"../my.toml\"; let config = configure().config_file(file); config.emit();",
        "Config::config_file(configure(), \"../my.toml\").emit();",
        "tune();",
    ] {
        let items = "fn tune() { configure().config_file(\"../my.toml\").emit(); }";
        let items = if statement.starts_with("tune") { items } else { "" };
        assert_eq!(script(statement, items), Ok(Some("../my.toml".into())), "{statement}");
    }
    for (items, file) in [
        ("mod helper;", "of-helper.toml"),
        ("mod around;", "of-nested.toml"),
        ("#[path = \"build/moved.rs\"] mod moved;", "of-moved.toml"),
    ] {
        assert_eq!(script("tune();", items), Ok(Some(file.into())), "{items}");
    }
}

#[test]
fn a_file_that_the_text_of_the_build_script_leaves_open_is_an_error() {
    let computed = "the argument of `config_file` is computed";
    let condition = "`config_file` is called under a condition";
    let several = "`config_file` is called with several files";
    let call = "configure().config_file(\"a.toml\").emit();";
    for (statement, why) in [
        ("configure().config_file(name()).emit();".to_owned(), computed),
        ("configure().config_file(std::env::var(\"FILE\").unwrap()).emit();".to_owned(), computed),
        ("configure().config_file(format!(\"{stage}.toml\")).emit();".to_owned(), computed),
        ("kept!(configure().config_file(\"a.toml\")).emit();".to_owned(), computed),
        ("let f = \"a.toml\"; { let f = \"b.toml\"; configure().config_file(f).emit(); }".to_owned(), computed),
        (
            "let mut f = PathBuf::from(\"a\"); f.push(\"b.toml\"); configure().config_file(f).emit();".to_owned(),
            computed,
        ),
        ("let mut f = \"a.toml\"; if x { f = \"b.toml\" } configure().config_file(f).emit();".to_owned(), computed),
        ("fn tune(file: &str) { configure().config_file(file).emit() } let file = \"log.txt\";".to_owned(), computed),
        ("let f = \"a.toml\"; let (f, _) = both(); configure().config_file(f).emit();".to_owned(), computed),
        ("let f = \"a.toml\"; each(|f| configure().config_file(f).emit());".to_owned(), computed),
        ("let Some(f) = file() else { return }; configure().config_file(f).emit();".to_owned(), computed),
        ("static mut F: &str = \"a.toml\"; configure().config_file(F).emit();".to_owned(), computed),
        (format!("if cfg!(windows) {{ {call} }}"), condition),
        (format!("#[cfg(windows)] {call}"), condition),
        (format!("#[cfg(windows)] {{ {call} }}"), condition),
        (format!("#[cfg(windows)] config = {call}"), condition),
        (format!("#[cfg_attr(unix, cfg(windows))] {call}"), condition),
        (format!("#[cfg(windows)] mod inner {{ fn tune() {{ {call} }} }}"), condition),
        (format!("impl Tune for Script {{ #[cfg(windows)] fn tune(&self) {{ {call} }} }}"), condition),
        (format!("#[cfg(windows)] impl Script {{ fn tune() {{ {call} }} }}"), condition),
        (format!("trait Tune {{ #[cfg(windows)] fn tune() {{ {call} }} }}"), condition),
        (format!("match 1 {{ 1 => {{ {call} }} _ => () }}"), condition),
        ("#[cfg(windows)] let config = configure().config_file(\"a.toml\");".to_owned(), condition),
        (format!("{call} {}", call.replace("a.toml", "b.toml")), several),
    ] {
        let said = script(&statement, "").expect_err(&statement);
        assert!(said.starts_with(&format!("/build.rs:2: {why}, so the file is unknown\n  help: ")), "{said}");
    }
}

#[test]
fn modules_of_a_build_script_have_its_conditions_and_mistakes() {
    let condition = "`config_file` is called under a condition, so the file is unknown\n  help: write one call without a \
                     condition: `.config_file(\"gpu-tuned.toml\")`";
    for items in ["#[cfg(windows)] mod helper;", "#[cfg(windows)]\n#[path = \"helper.rs\"] mod other;"] {
        assert_eq!(script("tune();", items), Err(format!("/helper.rs:1: {condition}")), "{items}");
    }
    assert_eq!(script("tune();", "#[cfg(windows)] mod around;"), Err(format!("/around/around.rs:1: {condition}")));
    let broken = script("tune();", "mod broken;").unwrap_err();
    assert!(broken.starts_with("/broken.rs:2: "), "{broken}");
    let broken = script("let = 1;", "").unwrap_err();
    assert!(broken.starts_with("/build.rs:2: "), "{broken}");
    // `mod helper;` in `helper.rs` is the file `helper/helper.rs`.
    let folder = folder(&[("build.rs", "mod helper; fn main() {}"), ("helper.rs", "mod helper;")]);
    assert!(matches!(config_file(&folder.path().join("build.rs")), Ok(None)));
    let circle = folder.path().join("circle.rs");
    fs::write(&circle, "#[path = \"circle.rs\"] mod circle;").unwrap();
    assert!(matches!(config_file(&circle), Ok(None)));
}
