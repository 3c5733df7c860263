//! `init --dry-run` on packages of every shape, with no claim of success where there is none: `tests/layouts.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::init::package;
use crate::project::Project;

/// Head of a manifest without dependencies.
const HEAD: &str =
    "[package]\nname = \"plain\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n[workspace]\n";
/// A training config, from the second line on.
const CONFIG: &str = "#[derive(Config)]\npub struct TrainConfig { #[config(default = 64)] batch_size: usize, \
                      #[config(default = 1)] epochs: usize, #[config(default = 0.1)] lr: f64 }";

#[derive(Deserialize)]
struct Layouts {
    layout: Vec<Layout>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layout {
    name: String,
    manifest: Option<String>,
    files: BTreeMap<String, String>,
    default_run: Option<String>,
    #[serde(default)]
    crlf: bool,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    code: i32,
    #[serde(default)]
    has: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
}

impl Layout {
    fn project(&self) -> Project {
        let burn = format!("{HEAD}\n[dependencies]\nburn = \"0.22.1\"\n");
        let manifest = self.manifest.as_ref().map_or(burn, |manifest| manifest.replace("$HEAD", HEAD));
        let run =
            self.default_run.as_ref().map(|run| format!("default-run = {run:?}\n\n[workspace]")).unwrap_or_default();
        let manifest = if run.is_empty() { manifest } else { manifest.replace("\n[workspace]", &run) };
        let ends = |text: &str| if self.crlf { text.replace('\n', "\r\n") } else { text.to_owned() };
        let project = package(&ends(&manifest));
        fs::remove_dir_all(project.path("src")).expect("it is there");
        for (file, text) in &self.files {
            fs::create_dir_all(project.path(file).parent().expect("a folder")).expect("it can be made");
            project.write(file, &ends(&text.replace("$CONFIG", CONFIG)));
        }
        project
    }
}

/// Runs `init --dry-run`, and checks what holds for every package. Returns the output.
fn shown(name: &str, project: &Project, code: i32, more: &[&str]) -> String {
    let before = files(&project.path(""));
    let ran = project.run(&[&["init", "--dry-run"], more].concat());
    let output = format!("{}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.code, code, "{name}: {output}");
    assert_eq!(files(&project.path("")), before, "{name}: a file was written");
    assert!(!ran.stdout.contains("is set up"), "{name}: {output}");
    if code == 0 {
        assert!(ran.stdout.contains("dry run: "), "{name}: {output}");
        let is_annotated =
            fs::read_to_string(project.path("src/main.rs")).is_ok_and(|text| text.contains("gpu_tuned("));
        let says = [
            "looks like a training config",
            "look like the training config",
            "no training config found",
            "the training config `",
        ];
        let said = says.iter().filter(|words| ran.stdout.contains(**words)).count();
        assert_eq!(said, usize::from(!is_annotated), "{name}: {output}");
        assert!(
            is_annotated || ["\nfound: ", "\nnot found: "].iter().any(|part| ran.stdout.contains(part)),
            "{name}: {output}"
        );
    } else {
        assert!(ran.stdout.is_empty() && ran.stderr.starts_with("error"), "{name}: {output}");
    }
    output
}

fn files(folder: &Path) -> Vec<(std::path::PathBuf, u64)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all.extend(files(&entry.path())),
            _ => all.push((entry.path(), entry.metadata().map_or(0, |metadata| metadata.len()))),
        }
    }
    all.sort();
    all
}

#[test]
fn every_layout_gets_what_was_found_and_what_was_not() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/layouts.toml")).expect("the table");
    let Layouts { layout: layouts } = toml::from_str(&text).expect("a table of layouts");
    let mut failed = Vec::new();
    for layout in &layouts {
        let mut more: Vec<&str> = layout.arguments.iter().map(String::as_str).collect();
        more.extend(layout.force.then_some("--force"));
        let output = shown(&layout.name, &layout.project(), layout.code, &more);
        let missing: Vec<_> = layout.has.iter().filter(|text| !output.contains(text.as_str())).collect();
        let wrong: Vec<_> = layout.lacks.iter().filter(|text| output.contains(text.as_str())).collect();
        if !missing.is_empty() || !wrong.is_empty() {
            failed.push(format!("{}: lacks {missing:?}, has {wrong:?}\n{output}", layout.name));
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), layouts.len(), failed.join("\n----\n"));
}

#[test]
fn a_source_that_is_no_text_is_skipped_with_a_note() {
    let project = package(&format!("{HEAD}\n[dependencies]\nburn = \"0.22.1\"\n"));
    fs::write(project.path("src/main.rs"), b"fn main() {}\n// \xff\xfe\n").expect("it can be written");
    let output = shown("no text", &project, 0, &[]);
    assert!(output.contains("`src/main.rs` cannot be read (stream did not contain valid UTF-8)"), "{output}");
}

#[test]
fn a_huge_source_is_read() {
    let project = package(&format!("{HEAD}\n[dependencies]\nburn = \"0.22.1\"\n"));
    let constants: String = (0..30_000).map(|n| format!("pub const C{n}: usize = C{} + 1;\n", n + 1)).collect();
    project.write("src/main.rs", &format!("{CONFIG}\nfn main() {{}}\n{constants}"));
    let output = shown("huge", &project, 0, &[]);
    assert!(output.contains("`TrainConfig` looks like"), "{output}");
}

#[cfg(unix)]
#[test]
fn links_in_a_circle_end() {
    let project = package(&format!("{HEAD}\n[dependencies]\nburn = \"0.22.1\"\n"));
    project.write("src/main.rs", "mod again;\nmod itself;\nfn main() {}\n");
    std::os::unix::fs::symlink("main.rs", project.path("src/again.rs")).expect("a link can be made");
    std::os::unix::fs::symlink("itself.rs", project.path("src/itself.rs")).expect("a link can be made");
    std::os::unix::fs::symlink("..", project.path("src/folder")).expect("a link can be made");
    shown("links", &project, 0, &[]);
}
