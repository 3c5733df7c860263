//! Texts that were good once: bytes, words and lines cut out, doubled, swapped and put in.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::written::EXTREMES;

/// What people and broken tools put into TOML.
const PIECES: [&str; 24] = [
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "=",
    ".",
    ",",
    "\n",
    "\r\n",
    "\"",
    "'''",
    "\"\"\"",
    "#",
    "\\u0000",
    "\0",
    "\u{feff}",
    "ß = \"ä\"",
    "[workload]",
    "[[profile]]",
    "[profile.\"\"]",
    "a.b.c.d = 1",
    "1979-05-27T07:32:00Z",
];

/// One change of a text.
#[derive(Clone, Debug)]
pub(crate) struct Mutation {
    unit: Unit,
    change: Change,
    at: Index,
    other: Index,
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Byte,
    Word,
    Line,
}

#[derive(Clone, Debug)]
enum Change {
    Delete,
    Double,
    Swap,
    Replace(String),
    Insert(String),
}

fn pieces() -> impl Strategy<Value = String> {
    let deep =
        (select(vec!["[", "{a=", "a.", "[[a]]\n", "'"]), 1usize..300).prop_map(|(part, depth)| part.repeat(depth));
    prop_oneof![
        4 => select(&EXTREMES[..]).prop_map(str::to_owned),
        4 => select(&PIECES[..]).prop_map(str::to_owned),
        2 => any::<char>().prop_map(String::from),
        1 => "[a-zß_]{1,8}".prop_map(|key| key.repeat(400)),
        1 => deep,
    ]
}

pub(crate) fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let change = prop_oneof![
        Just(Change::Delete),
        Just(Change::Double),
        Just(Change::Swap),
        pieces().prop_map(Change::Replace),
        pieces().prop_map(Change::Insert),
    ];
    let unit = select(vec![Unit::Byte, Unit::Word, Unit::Word, Unit::Line]);
    let mutation = (unit, change, any::<Index>(), any::<Index>());
    vec(mutation.prop_map(|(unit, change, at, other)| Mutation { unit, change, at, other }), 1..5)
}

pub(crate) fn mutated(text: &str, mutations: Vec<Mutation>) -> String {
    mutations.into_iter().fold(text.to_owned(), |text, mutation| mutation.apply(&text))
}

impl Mutation {
    fn apply(self, text: &str) -> String {
        let mut parts: Vec<Vec<u8>> = match self.unit {
            Unit::Byte => text.bytes().map(|byte| vec![byte]).collect(),
            Unit::Word => words(text),
            Unit::Line => text.split_inclusive('\n').map(|line| line.as_bytes().to_vec()).collect(),
        };
        if parts.is_empty() {
            return text.to_owned();
        }
        let (at, other) = (self.at.index(parts.len()), self.other.index(parts.len()));
        match self.change {
            Change::Delete => drop(parts.remove(at)),
            Change::Double => parts.insert(other, parts[at].clone()),
            Change::Swap => parts.swap(at, other),
            Change::Replace(piece) => parts[at] = piece.into_bytes(),
            Change::Insert(piece) => parts.insert(at, piece.into_bytes()),
        }
        // Files that are no UTF-8 do not get as far as the parser.
        String::from_utf8_lossy(&parts.concat()).into_owned()
    }
}

/// Names and numbers, and what stands between them.
fn words(text: &str) -> Vec<Vec<u8>> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    text.as_bytes().chunk_by(|a, b| is_word(*a) == is_word(*b)).map(<[u8]>::to_vec).collect()
}
