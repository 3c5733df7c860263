//! JSON, with comments and trailing commas allowed.

use jsonc_parser::ast::{ObjectPropName, Value as Parsed};
use jsonc_parser::common::{Range, Ranged as _};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{Entry, FileError, Node, Source, Value};

pub(super) fn parse(source: Source<'_>) -> Result<Node, FileError> {
    let options = ParseOptions { allow_missing_commas: false, ..ParseOptions::default() };
    let parsed = parse_to_ast(source.text, &CollectOptions::default(), &options)
        .map_err(|error| source.error(&span(error.range()), lowercase_first(&error.kind().to_string())))?;
    let root = parsed.value.ok_or_else(|| source.error(&(0..0), "the file is empty"))?;
    Ok(node(&root))
}

/// A message with a small first letter.
fn lowercase_first(message: &str) -> String {
    let mut letters = message.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn span(range: Range) -> core::ops::Range<usize> {
    range.start..range.end
}

fn node(parsed: &Parsed<'_>) -> Node {
    let value = match parsed {
        Parsed::NullKeyword(_) => Value::Null,
        Parsed::BooleanLit(flag) => Value::Flag(flag.value),
        Parsed::NumberLit(number) => Value::Number(number.value.to_owned()),
        Parsed::StringLit(text) => Value::Text(text.value.to_string()),
        Parsed::Array(list) => Value::List(list.elements.iter().map(node).collect()),
        Parsed::Object(object) => {
            let entry = |property: &jsonc_parser::ast::ObjectProp<'_>| {
                let (key, range) = match &property.name {
                    ObjectPropName::String(name) => (name.value.to_string(), name.range),
                    ObjectPropName::Word(name) => (name.value.to_owned(), name.range),
                };
                Entry { key, key_span: span(range), node: node(&property.value) }
            };
            Value::Table(object.properties.iter().map(entry).collect())
        }
    };
    Node { value, span: span(parsed.range()) }
}
