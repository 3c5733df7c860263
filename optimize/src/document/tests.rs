use std::path::Path;

use gpu_tuned_core::source::Source;

use super::{ConfigText, Format, Node, Value};
use crate::edit::{Edit, apply, insertion};

const FORMATS: [Format; 3] = [Format::Json, Format::Toml, Format::Yaml];

fn parse(format: Format, text: &str) -> Result<Node, String> {
    format.parse(Source { file: "config", text }).map(|(root, _)| root).map_err(|error| error.to_string())
}

fn entry<'n>(node: &'n Node, path: &[&str]) -> &'n super::Entry {
    let Value::Table(entries) = &node.value else { panic!("no table: {node:?}") };
    let found = entries.iter().find(|entry| entry.key == path[0]).unwrap_or_else(|| panic!("no {path:?} in {node:?}"));
    if path.len() == 1 { found } else { entry(&found.node, &path[1..]) }
}

/// The same config in each format, with letters of several bytes before what is looked for.
const SAME: [&str; 3] = [
    "{ // größe\n  \"train\": {\"batch\": 16, \"amp\": true, \"name\": \"täst\", \"lens\": [7, 30]}, \"rate\": 1e-4 }",
    "# größe\nrate = 1e-4\n[train]\nbatch = 16\namp = true\nname = \"täst\"\nlens = [7, 30]\n",
    "# größe\ntrain:\n  batch: 16\n  amp: yes\n  name: täst\n  lens: [7, 30]\nrate: 1e-4\n",
];

#[test]
fn values_and_ranges_agree_between_formats() {
    for (format, text) in FORMATS.into_iter().zip(SAME) {
        let root = parse(format, text).expect("it is right");
        let at = |path: &[&str]| {
            let entry = entry(&root, path);
            (&entry.node.value, &text[entry.key_span.clone()], &text[entry.node.span.clone()])
        };
        let (value, key, written) = at(&["train", "batch"]);
        assert_eq!((value.count(), key.trim_matches('"'), written), (Some(16), "batch", "16"), "{format:?}");
        assert_eq!(*at(&["train", "amp"]).0, Value::Flag(true));
        assert_eq!(at(&["train", "name"]).2.trim_matches('"'), "täst");
        let Value::List(lengths) = at(&["train", "lens"]).0 else { panic!("no list") };
        assert_eq!(lengths.iter().map(|node| node.value.count()).collect::<Vec<_>>(), [Some(7), Some(30)]);
        let Value::Number(rate) = at(&["rate"]).0 else { panic!("no number") };
        assert_eq!(rate.parse(), Ok(1e-4));
    }
}

#[test]
fn mistakes_name_line_and_column() {
    for (format, text, message) in [
        (Format::Json, "{\n  \"a\": 1,\n  \"b\": }\n", "config:3:8: unexpected close brace"),
        (Format::Json, "{\"a\": 1 \"b\": 2}", "config:1:8: expected comma"),
        (Format::Json, "[1, 2]", "config:1:1: a config is a table of keys and values"),
        (Format::Json, "", "config:1:1: the file is empty"),
        (Format::Toml, "a = 1\nb = [1,\n", "config:2:8: unclosed array"),
        (Format::Toml, "a = 1\na = 2\n", "config:2:1: duplicate key"),
        (Format::Yaml, "a: 1\nb: [1, 2\n", "config:3:1: "),
        (Format::Yaml, "a: 1\n---\nb: 2\n", "config:2:1: a config is one document, and here begins another"),
        (Format::Yaml, "just text\n", "config:1:1: a config is a table of keys and values"),
        (Format::Yaml, "# nothing\n", "config:1:1: the file is empty"),
    ] {
        let message_found = parse(format, text).expect_err(text);
        assert!(message_found.starts_with(message), "{text:?}: {message_found}");
    }
}

#[test]
fn endless_nesting_is_refused_in_each_format() {
    let json = format!("{{\"a\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let toml = format!("a = {}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for (format, text) in FORMATS.into_iter().zip([&json, &toml, &json]) {
        assert!(parse(format, text).is_err(), "{format:?}");
    }
}

#[test]
fn yaml_aliases_of_scalars_are_resolved_and_others_are_their_names() {
    let text = "base: &base {batch: &batch 16}\ntrain:\n  <<: *base\n  micro: *batch\n";
    let root = parse(Format::Yaml, text).expect("it is right");
    let micro = entry(&root, &["train", "micro"]);
    assert_eq!((micro.node.value.count(), &text[micro.node.span.clone()]), (Some(16), "*batch"));
    assert_eq!(entry(&root, &["train", "<<"]).node.value, Value::Text("*base".to_owned()));
    // An edit replaces the value, not its anchor.
    assert_eq!(&text[entry(&root, &["base", "batch"]).node.span.clone()], "16");
}

/// Adds `b: 2` and `c: 3` beside `a`.
fn added(format: Format, text: &str, path: &[&str]) -> String {
    let entries = ConfigText::new(Path::new("config"), format, text).entries().expect("it is right");
    let beside = entries.iter().find(|entry| entry.shown == path.join(".")).expect("a key of the file");
    let added = [("b", "2"), ("c", "3")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    apply(text, insertion(beside, &added, format, text))
}

#[test]
fn added_keys_follow_the_spelling_of_their_neighbour() {
    for (format, path, before, after) in [
        (
            Format::Json,
            &["a"][..],
            "{\n  \"a\": 1, // one\n  \"z\": 9\n}\n",
            "{\n  \"a\": 1, // one\n  \"b\": 2,\n  \"c\": 3,\n  \"z\": 9\n}\n",
        ),
        (Format::Json, &["a"], "{\n\t\"a\" : 1 /* one */\n}", "{\n\t\"a\" : 1, /* one */\n\t\"b\": 2,\n\t\"c\": 3\n}"),
        (Format::Json, &["a"], "{\"a\":1}", "{\"a\":1, \"b\":2, \"c\":3}"),
        (Format::Json, &["a"], "{\n  \"a\": 1, \"z\": 9\n}", "{\n  \"a\": 1, \"b\": 2, \"c\": 3, \"z\": 9\n}"),
        (Format::Json, &["a"], "{\r\n  \"a\": 1\r\n}", "{\r\n  \"a\": 1,\r\n  \"b\": 2,\r\n  \"c\": 3\r\n}"),
        (Format::Toml, &["a"], "a = 1 # one\nz = 9", "a = 1 # one\nb = 2\nc = 3\nz = 9"),
        (Format::Toml, &["t", "a"], "t.a = 1", "t.a = 1\nt.b = 2\nt.c = 3"),
        (Format::Toml, &["t", "a"], "t = { a = 1, z = 9 }", "t = { a = 1, b = 2, c = 3, z = 9 }"),
        (Format::Yaml, &["t", "a"], "t:\n  a: 1   # one\nz: 9\n", "t:\n  a: 1   # one\n  b: 2\n  c: 3\nz: 9\n"),
        (Format::Yaml, &["t", "a"], "t: {a: 1, z: 9}", "t: {a: 1, b: 2, c: 3, z: 9}"),
        (Format::Yaml, &["t", "a"], "t: {\n  a: 1,\n  z: 9\n}", "t: {\n  a: 1, b: 2, c: 3,\n  z: 9\n}"),
        (Format::Yaml, &["a"], "'a': 1", "'a': 1\n'b': 2\n'c': 3"),
    ] {
        let text = added(format, before, path);
        assert_eq!(text, after, "{format:?}");
        let root = parse(format, &text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let table = &path[..path.len() - 1];
        for (key, count) in [("a", 1), ("b", 2), ("c", 3)] {
            assert_eq!(entry(&root, &[table, &[key]].concat()).node.value.count(), Some(count), "{text}");
        }
    }
}

#[test]
fn brackets_that_are_not_indented_are_read_as_python_reads_them() {
    for (text, first) in [
        ("c: [\n  \"a\"\n]\nbatch: 8\n", "c: ["),
        ("c: {\n  \"k\": \"ä # }\" # a comment with ] in it\n}\nbatch: 8\n", "c: {"),
        ("c: [1, # ]\r\n'it''s'\r\n]\r\nbatch: 8\r\n", "c: ["),
        ("c: {\npath: \"C:\\\\\",\nq: \"\\\"}\"\n}\nbatch: 8\n", "c: {"),
        ("c: {\npath: 'C:\\',\nq: '}\\\\'\n}\nbatch: 8\n", "c: {"),
    ] {
        let root = parse(Format::Yaml, text).expect(text);
        let batch = entry(&root, &["batch"]);
        assert_eq!((batch.node.value.count(), &text[batch.node.span.clone()]), (Some(8), "8"));
        assert!(text.starts_with(first) && !matches!(entry(&root, &["c"]).node.value, Value::Null));
    }
    parse(Format::Yaml, "a: [1\nb: 2\n").expect_err("an open bracket");
}

#[test]
fn ranges_of_quoted_texts_end_with_the_quote() {
    for (text, raw) in [
        ("dtype: \"bf16\" # kept", "\"bf16\""),
        ("dtype: 'it''s'   # kept", "'it''s'"),
        ("dtype: \"a \\\" b\"", "\"a \\\" b\""),
        ("dtype: &x 'ä' # kept", "'ä'"),
    ] {
        let root = parse(Format::Yaml, text).expect(text);
        assert_eq!(&text[entry(&root, &["dtype"]).node.span.clone()], raw);
    }
}

#[test]
fn edits_leave_the_rest_unchanged_in_any_order() {
    let edit = |span: core::ops::Range<usize>, text: &str| Edit { span, text: text.to_owned() };
    assert_eq!(apply("a ß c", vec![edit(5..6, "C"), edit(0..1, "A")]), "A ß C");
}
