//! Tables of commands, `tests/cases/*.toml`, and transcripts of what the commands print, `tests/cases/*.snap`.
//!
//! A case has a `name`. Its `package` is a fixture, `bare` by default. `with` names a fixture whose files are added, and `beside`
//! fixtures in the same folder. `files` are written first. `columns` is the length of the longest line on standard output.
//!
//! `steps` are commands without `cargo gpu-tuned`, and changes of files. Variables are in front of a command. `GPUS=two-gpus` is a
//! scenario of the fake driver. Behind ` | ` is the part of the output to show. `grep TEXT` shows lines, `words` removes line breaks,
//! and `count` counts lines. Others are paths in JSON, such as `plans.*.target`.
//!
//! `$NAME` stands for a text of the table `text`. `$CHECKOUT` is this checkout. `INSTA_UPDATE=always` writes transcripts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::project::{Project, Ran, apply as apply_diff, copy, fixtures, with_gpus};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    text: BTreeMap<String, String>,
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    package: Option<String>,
    with: Option<String>,
    #[serde(default)]
    beside: Vec<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    columns: Option<usize>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Step {
    Run(String),
    Folder { cd: String },
    Write { write: String, text: String },
    Replace { replace: String, from: String, to: String },
    Remove { remove: String },
    Cut { cut: String, before: String },
    Print { print: String },
    Apply { apply: String },
}

impl Table {
    fn expand(&self, text: &str) -> String {
        let text = text.replace("$CHECKOUT", concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        self.text.iter().fold(text, |text, (name, value)| text.replace(&format!("${name}"), value))
    }

    fn transcript(&self, case: &Case) -> String {
        let mut project = Project::new(case.package.as_deref().unwrap_or("bare"));
        for other in &case.beside {
            project = project.beside(other);
        }
        if let Some(other) = &case.with {
            copy(&fixtures().join(other), &project.path(""));
        }
        for (file, text) in &case.files {
            project.write(file, &self.expand(text));
        }
        let mut folder = project.path("");
        let mut transcript = format!("## {}\n", case.name);
        for step in &case.steps {
            match step {
                Step::Run(line) => {
                    let shown = run(&project, &folder, &self.expand(line));
                    let longest =
                        shown.lines().filter(|line| !line.starts_with("2> ")).map(|line| line.chars().count()).max();
                    assert!(case.columns.is_none_or(|columns| longest <= Some(columns)), "{line}: {longest:?} columns");
                    writeln!(transcript, "$ {line}\n{shown}").expect("text");
                }
                Step::Folder { cd } => folder = project.path(cd),
                Step::Write { write, text } => project.write(write, &self.expand(text)),
                Step::Replace { replace, from, to } => project.replace(replace, from, &self.expand(to)),
                Step::Remove { remove } => fs::remove_file(project.path(remove)).expect("the file is there"),
                Step::Cut { cut, before } => {
                    let text = project.read(cut);
                    project.write(cut, text.split_once(before.as_str()).expect("the text is there").0);
                }
                Step::Apply { apply } => {
                    let answer = project.run(&split(apply).iter().map(String::as_str).collect::<Vec<_>>()).json(0);
                    apply_diff(&project.path(""), answer["proposal"]["diff"].as_str().expect("a diff"));
                }
                Step::Print { print } => {
                    let text = fs::read_to_string(project.path(print)).unwrap_or_else(|_| "(no such file)".to_owned());
                    writeln!(transcript, "$ cat {print}\n{}", text.trim_end()).expect("text");
                }
            }
        }
        [("[FOLDER]", project.path("..")), ("[CHECKOUT]", Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))]
            .into_iter()
            .fold(transcript, |text, (name, folder)| {
                let folder = folder.canonicalize().expect("the folder is there");
                text.replace(folder.to_str().expect("UTF-8"), name)
            })
    }
}

/// Runs a line in a folder. Returns what the transcript shows: standard output, standard error behind `2> `, an exit status behind `? `.
fn run(project: &Project, folder: &Path, line: &str) -> String {
    let (line, shown) = line.split_once(" | ").unwrap_or((line, ""));
    let words: Vec<_> = split(line).into_iter().filter(|word| !word.is_empty()).collect();
    let is_variable = |word: &String| {
        word.split_once('=').is_some_and(|(name, _)| name.bytes().all(|it| it.is_ascii_uppercase() || it == b'_'))
    };
    let (variables, args) = words.split_at(words.iter().take_while(|word| is_variable(word)).count());
    let mut command = project.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
    command.current_dir(folder);
    for (name, value) in variables.iter().filter_map(|word| word.split_once('=')) {
        match name {
            "GPUS" => with_gpus(&mut command, &fake_nvml::scenario(value)),
            _ => command.env(name, value),
        };
    }
    let Ran { code, stdout, stderr } = Ran::of(command.stdin(std::process::Stdio::null()));
    let mut text = match shown.split_once(' ').unwrap_or((shown, "")) {
        ("", _) => stdout,
        ("count", _) => format!("{} lines\n", stdout.lines().count()),
        ("words", _) => words_of(&stdout) + "\n",
        ("grep", part) => {
            stdout.lines().filter(|line| line.contains(part)).fold(String::new(), |all, it| all + it + "\n")
        }
        _ => {
            let answer =
                serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{line}: {error}: {stdout}{stderr}"));
            let show = |path| format!("{path}: {}\n", figures(&answer, path));
            shown.split(' ').map(show).collect()
        }
    };
    stderr.lines().for_each(|line| text += &format!("2> {line}\n"));
    if code != 0 {
        text += &format!("? {code}\n");
    }
    text.trim_end().to_owned()
}

/// Splits a line at single spaces outside of quotes.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for letter in line.chars() {
        match letter {
            _ if quote == Some(letter) => quote = None,
            '\'' | '"' if quote.is_none() => quote = Some(letter),
            ' ' if quote.is_none() => words.push(String::new()),
            _ => words.last_mut().expect("there is a word").push(letter),
        }
    }
    words
}

/// Text without line breaks, which depend on the width.
pub(crate) fn words_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The value at a path in JSON, where `*` stands for every entry of a list.
fn figures(value: &Value, path: &str) -> Value {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let next = match (value, name) {
        (Value::Array(items), "*") => {
            return items.iter().map(|item| rest.map_or_else(|| item.clone(), |rest| figures(item, rest))).collect();
        }
        (Value::Array(items), index) => items.get(index.parse::<usize>().expect("a number")),
        _ => value.get(name),
    };
    let next = next.cloned().unwrap_or_default();
    rest.map_or_else(|| next.clone(), |rest| figures(&next, rest))
}

/// Compares the transcripts of a table with those on record.
fn compare(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let text = fs::read_to_string(folder.join(name).with_extension("toml")).expect("a table");
    let table: Table = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}.toml: {error}"));
    let transcripts: Vec<_> = table.case.iter().map(|case| table.transcript(case)).collect();
    insta::with_settings!({ snapshot_path => folder, prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, transcripts.join("\n"));
    });
}

macro_rules! tables {
    ($($name:ident)+) => {
        $(#[test] fn $name() { compare(stringify!($name)); })+
    };
}

tables! { check explain help init machines optimize packages plan programs proposals recordings setup targets }
