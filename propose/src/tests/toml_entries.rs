//! New entries of TOML documents.

use toml_edit::{DocumentMut, Item, Value};

use crate::toml_insert::{self, Order, entry, in_list};

fn listed(before: &str) -> String {
    let mut document: DocumentMut = before.parse().expect("it is TOML");
    in_list(document["a"].as_array_mut().expect("it is a list"), "new");
    let after = document.to_string();
    let read: toml::Table = after.parse().unwrap_or_else(|error| panic!("{error}: {after}"));
    assert_eq!(read["a"].as_array().and_then(|list| list.last()?.as_str()), Some("new"), "{after}");
    after
}

#[test]
fn lists_keep_their_form() {
    for (before, after) in [
        ("a = []", "a = [\"new\"]"),
        ("a = [\"b\"]", "a = [\"b\", \"new\"]"),
        ("a = [ \"b\" ]", "a = [ \"b\" , \"new\"]"),
        ("a = [\n  \"b\",\n]", "a = [\n  \"b\",\n  \"new\",\n]"),
        ("a = [\n  \"b\"\n]", "a = [\n  \"b\",\n  \"new\"\n]"),
        ("a = [\n  \"b\", # why\n]", "a = [\n  \"b\", # why\n  \"new\",\n]"),
        ("a = [\n  # why\n  \"b\",\n]", "a = [\n  # why\n  \"b\",\n  \"new\",\n]"),
    ] {
        assert_eq!(listed(before).trim_end(), after);
    }
}

#[test]
fn comments_stay_with_the_table_before() {
    for (before, after) in [
        ("[d]\na = 1\n# b = 2\n", "[d]\na = 1\n# b = 2\n\n[new]\n"),
        ("[d]\na = 1\n", "[d]\na = 1\n\n[new]\n"),
        ("[d]\na = 1\n# b = 2\n\n# Of z.\n[z]\n", "[d]\na = 1\n# b = 2\n\n[new]\n\n# Of z.\n[z]\n"),
        ("[d]\na = 1\n# b = 2\n\n[z.y]\n", "[d]\na = 1\n# b = 2\n\n[new]\n\n[z.y]\n"),
        ("[d]\na = 1\n\n# Of z.\n[[z]]\n", "[d]\na = 1\n\n[new]\n\n# Of z.\n[[z]]\n"),
    ] {
        let mut document: DocumentMut = before.parse().expect("it is TOML");
        toml_insert::table(&mut document, "new", &["d"]);
        assert_eq!(document.to_string(), after);
    }
}

fn added(before: &str, name: &str) -> String {
    let mut document: DocumentMut = before.parse().expect("it is TOML");
    entry(&mut document["t"], name, Item::Value(Value::from(1)), Order::Sorted);
    document.to_string()
}

#[test]
fn entries_go_where_the_alphabet_has_them_if_that_is_the_order() {
    for (before, after) in [
        ("[t]\na = 0 # x\n# of n\nn = 0\n\n[u]\n", "[t]\na = 0 # x\nm = 1\n# of n\nn = 0\n\n[u]\n"),
        ("[t]\nz = 0\na = 0\n\n[u]\n", "[t]\nz = 0\na = 0\nm = 1\n\n[u]\n"),
        ("[t]\ndefault = 0\na = 0\nn = 0\n", "[t]\ndefault = 0\na = 0\nm = 1\nn = 0\n"),
        ("[t]\na.x = 0\nn.x = 0\n", "[t]\na.x = 0\nm = 1\nn.x = 0\n"),
        ("[t.a]\nx = 0\n", "[t]\nm = 1\n[t.a]\nx = 0\n"),
        ("t = { a = 0 }\n", "t = { a = 0, m = 1 }\n"),
        ("t = {}\n", "t = { m = 1 }\n"),
    ] {
        assert_eq!(added(before, "m").trim_start(), after);
    }
}
