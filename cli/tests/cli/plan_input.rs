//! The command plans what the build compiles in: rows of `plan --json` against constants that the macro generated.
//!
//! A copy of each package is checked with the macro and without Burn. Expansion comes before name resolution, so that the
//! constants are there although nothing else compiles.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proc_macro2::{TokenStream, TokenTree};
use serde_json::Value;

use crate::project::{Ran, copy};

/// The targets that every package is built for.
const TARGETS: [&str; 3] = ["gtx1080", "rtx4090", "h200"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The constants of an annotated struct: the target, and all settings by name.
#[derive(Debug)]
struct Built {
    target: String,
    settings: BTreeMap<String, String>,
    global_batch: String,
}

/// A copy of a package that depends on the macro, and on nothing else.
struct Copied {
    folder: PathBuf,
}

impl Copied {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plan-input").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let copied = Self { folder };
        copied.write("Cargo.lock", &fs::read_to_string(workspace().join("Cargo.lock")).unwrap());
        let dependency = |name: &str, folder: &str| {
            format!("{name} = {{ path = '{}', default-features = false }}\n", workspace().join(folder).display())
        };
        let (runtime, build) = (dependency("gpu-tuned", "runtime"), dependency("gpu-tuned-build", "build-support"));
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n{runtime}\n\
             [build-dependencies]\n{build}\n[workspace]\n\n[profile.dev]\ndebug = 0\nincremental = false\n"
        );
        copied.write("Cargo.toml", &manifest);
        copied
    }

    /// Copies a package of the workspace.
    fn from_package(name: &str, package: &Path) -> Self {
        let copied = Self::new(name);
        for folder in ["src", "before"].into_iter().filter(|folder| package.join(folder).is_dir()) {
            copy(&package.join(folder), &copied.folder.join(folder));
        }
        for file in ["gpu-tuned.toml", "gpu-tuned.lock"] {
            if package.join(file).is_file() {
                fs::copy(package.join(file), copied.folder.join(file)).unwrap();
            }
        }
        copied.write("build.rs", "fn main() {\n    gpu_tuned_build::configure().emit();\n}\n");
        copied
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Returns the constants by the struct's name, from the expansions of a check.
    fn built(&self, target: &str, args: &[&str]) -> BTreeMap<String, Built> {
        let expanded = self.folder.join("expanded").join(args.join("-")).join(target);
        let mut command = Command::new(env!("CARGO"));
        command.arg("check").args(args).current_dir(&self.folder);
        // The packages of `tests/matrix` are built there, too.
        command.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages"));
        command.env("GPU_TUNED_EXPAND_DIR", &expanded).env("GPU_TUNED_TARGET", target);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let crates = fs::read_dir(&expanded).unwrap_or_else(|error| panic!("{error}: {stderr}"));
        let files = crates.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
        let built = files.map(|file| {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let built = constants(fs::read_to_string(&path).unwrap().parse().unwrap());
            (name, built.unwrap_or_else(|| panic!("{}: no constants", path.display())))
        });
        built.collect()
    }
}

/// Returns the fields of `Built { … }` in an expansion.
fn constants(tokens: TokenStream) -> Option<Built> {
    let tokens: Vec<_> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        if index > 0 && matches!(&tokens[index - 1], TokenTree::Ident(ident) if ident == "Built") {
            let built = fields(group.stream());
            let settings: TokenStream = built["settings"].parse().unwrap();
            let TokenTree::Group(settings) = settings.into_iter().last().unwrap() else { panic!("{built:?}") };
            let text = |name: &str| built[name].trim_matches('"').to_owned();
            let settings = fields(settings.stream());
            return Some(Built { target: text("target"), global_batch: text("global_batch"), settings });
        }
        if let Some(found) = constants(group.stream()) {
            return Some(found);
        }
    }
    None
}

/// Splits `name: value, …`.
fn fields(tokens: TokenStream) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let mut tokens = tokens.into_iter();
    while let Some(name) = tokens.next() {
        let mut value = String::new();
        let rest =
            tokens.by_ref().skip(1).take_while(|token| !matches!(token, TokenTree::Punct(it) if it.as_char() == ','));
        rest.for_each(|token| write!(value, "{token}").unwrap());
        fields.insert(name.to_string(), value);
    }
    fields
}

/// Runs `plan --json` for one struct on one target.
fn planned(folder: &Path, name: &str, target: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpu-tuned"));
    command.args(["plan", "--json", "--struct", name, target]).current_dir(folder);
    let rows = Ran::of(&mut command).json(0);
    let [row] = rows["plans"].as_array().unwrap().as_slice() else { panic!("{rows:#}") };
    assert_eq!((&row["config"], &row["target"]), (&name.into(), &target.into()), "{rows:#}");
    row["plan"].clone()
}

/// Compares the plan of the command in `folder` with the constants of a struct.
fn assert_equal(folder: &Path, name: &str, built: &Built) {
    let plan = planned(folder, name, &built.target);
    let settings: BTreeMap<_, _> = plan["settings"].as_object().unwrap().iter().collect();
    assert_eq!(settings.len(), built.settings.len(), "{settings:?} {built:?}");
    for (setting, value) in settings {
        let compiled = &built.settings[setting];
        // A precision is the variant of an enumeration: `MixedBf16` for `mixed_bf16`.
        let plain = |text: &str| text.rsplit("::").next().unwrap().replace(['_', '"'], "").to_lowercase();
        assert_eq!(plain(&value.to_string()), plain(compiled), "{name} on {}: {setting}", built.target);
    }
    let global_batch = plan["schedule"]["global_batch"].to_string();
    assert_eq!(global_batch, built.global_batch, "{name} on {}", built.target);
}

/// Checks a package of the workspace for every target; returns the constants of the last.
fn check(folder: &str, structs: &[&str]) -> BTreeMap<String, Built> {
    let package = workspace().join(folder);
    let copied = Copied::from_package(folder.rsplit('/').next().unwrap(), &package);
    let mut last = BTreeMap::new();
    for target in TARGETS {
        last = copied.built(target, &[]);
        for name in structs {
            let built = last.get(*name).unwrap_or_else(|| panic!("{folder}: no expansion of {name} among {last:?}"));
            assert_eq!(built.target, target);
            assert_equal(&package, name, built);
        }
    }
    last
}

#[test]
fn the_example_with_a_named_workload_is_planned_as_it_is_built() {
    check("examples/digits", &["TrainingConfig"]);
    let plan = planned(&workspace().join("examples/digits"), "TrainingConfig", "rtx4090");
    let settings = &plan["settings"];
    assert_eq!((&settings["batch_size"], &settings["gradient_accumulation"]), (&256.into(), &1.into()));
}

#[test]
fn the_example_with_dimensions_in_fields_is_planned_as_it_is_built() {
    check("examples/char-lm", &["TrainingConfig"]);
}

#[test]
fn burns_configs_are_planned_as_they_are_built() {
    let structs = ["TrainingConfig", "MnistTrainingConfig", "LoopConfig", "ExperimentConfig"];
    let built = check("tests/burn-configs", &structs);
    assert_eq!(built.len(), structs.len(), "{built:?}");
}

#[test]
fn measured_programs_are_planned_as_they_are_built_and_structs_of_macros_are_named() {
    let built = check("tests/guides", &["Series"]);
    assert_eq!(built.keys().collect::<Vec<_>>(), ["BatchNormed", "Patches", "Series"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpu-tuned"));
    command.args(["plan", "h200"]).current_dir(workspace().join("tests/guides"));
    let ran = Ran::of(&mut command);
    assert!(ran.stderr.contains("note: tests/guides/src/patches.rs:48: not read: a macro makes"), "{}", ran.stderr);
}

/// The programs of the book, each with a file name.
fn programs() -> Vec<(String, String)> {
    let mut programs = Vec::new();
    let mut pages: Vec<_> = fs::read_dir(workspace().join("docs")).unwrap().map(|page| page.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let blocks = text.split("\n```").skip(1).step_by(2);
        for (number, block) in blocks.enumerate() {
            let (kind, code) = block.split_once('\n').unwrap_or_default();
            if !kind.starts_with("rust") || !code.contains("#[gpu_tuned") {
                continue;
            }
            // Hidden lines begin with `# `.
            let lines = code.lines().map(|line| line.strip_prefix("# ").unwrap_or(if line == "#" { "" } else { line }));
            let code = lines.collect::<Vec<_>>().join("\n");
            let code = if code.contains("fn main(") { code } else { format!("fn main() {{\n{code}\n}}\n") };
            let page = page.file_stem().unwrap().to_str().unwrap().replace('-', "_");
            programs.push((format!("{page}_{number}"), code));
        }
    }
    programs
}

#[test]
fn the_books_programs_are_planned_as_they_are_built() {
    let programs = programs();
    assert!(programs.len() >= 5, "{programs:?}");
    let copied = Copied::new("book");
    copied.write("build.rs", "fn main() {\n    gpu_tuned_build::configure().emit();\n}\n");
    for (name, code) in &programs {
        copied.write(&format!("src/bin/{name}.rs"), code);
    }
    for (name, code) in &programs {
        let built = copied.built("rtx4090", &["--bin", name]);
        assert_eq!(built.len(), code.matches("#[gpu_tuned").count(), "{name}: {built:?}");
        for (config, built) in built {
            // Structs of several programs have the same name: the path begins with the program's.
            let path = format!("{name}::{config}");
            let plan = planned_path(&copied.folder, &path, &config, &built.target);
            assert_eq!(plan["settings"]["batch_size"].to_string(), built.settings["batch_size"], "{path}");
            assert_eq!(plan["schedule"]["global_batch"].to_string(), built.global_batch, "{path}");
        }
    }
}

fn planned_path(folder: &Path, path: &str, name: &str, target: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpu-tuned"));
    command.args(["plan", "--json", "--struct", path, target]).current_dir(folder);
    let rows = Ran::of(&mut command).json(0);
    assert_eq!(rows["plans"][0]["config"], name, "{rows:#}");
    rows["plans"][0]["plan"].clone()
}

#[test]
fn targets_in_attributes_are_planned_as_they_are_built() {
    let package = workspace().join("tests/ui");
    let copied = Copied::new("ui");
    copied.write("src/lib.rs", &fs::read_to_string(package.join("tests/it/generated.rs")).unwrap());
    let built = copied.built("", &[]);
    assert!(built.len() >= 5, "{built:?}");
    for (name, built) in &built {
        assert_equal(&package, name, built);
    }
}
