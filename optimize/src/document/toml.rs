//! TOML.

use toml_edit::{Document, Item, Key, TableLike, Value as Parsed};

use super::{Entry, FileError, Node, Source, Value};

pub(super) fn parse(source: Source<'_>) -> Result<Node, FileError> {
    let document = Document::parse(source.text)
        .map_err(|error| source.error(&error.span().unwrap_or(0..0), error.message().replace('\n', "; ")))?;
    Ok(item(document.as_item()))
}

fn item(found: &Item) -> Node {
    let span = found.span().unwrap_or(0..0);
    let value = match found {
        Item::None => Value::Null,
        Item::Value(value) => return self::value(value),
        Item::Table(inner) => entries(inner),
        Item::ArrayOfTables(tables) => {
            let node = |inner: &toml_edit::Table| Node { value: entries(inner), span: inner.span().unwrap_or(0..0) };
            Value::List(tables.iter().map(node).collect())
        }
    };
    Node { value, span }
}

fn entries(found: &dyn TableLike) -> Value {
    let key_span = |key: Option<Key>| key.and_then(|key| key.span()).unwrap_or(0..0);
    let entry = |(name, inner): (&str, &Item)| {
        let key_span = key_span(found.key(name).cloned());
        Entry { key: name.to_owned(), key_span, node: item(inner) }
    };
    Value::Table(found.iter().map(entry).collect())
}

fn value(found: &Parsed) -> Node {
    let span = found.span().unwrap_or(0..0);
    let value = match found {
        Parsed::Boolean(flag) => Value::Flag(*flag.value()),
        Parsed::Integer(number) => Value::Number(number.value().to_string()),
        Parsed::Float(number) => Value::Number(format!("{:?}", number.value())),
        Parsed::String(text) => Value::Text(text.value().clone()),
        Parsed::Datetime(moment) => Value::Text(moment.value().to_string()),
        Parsed::Array(list) => Value::List(list.iter().map(value).collect()),
        Parsed::InlineTable(inner) => entries(inner),
    };
    Node { value, span }
}
