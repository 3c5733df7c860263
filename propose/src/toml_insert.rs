//! New entries of TOML documents in the usual places.

use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value};

/// Returns the table with this name, created behind the named ones if missing.
pub fn table<'d>(document: &'d mut DocumentMut, name: &str, behind: &[&str]) -> &'d mut Item {
    if document.get(name).is_none() {
        let last = behind.iter().filter_map(|name| last_position(document.get(name)?)).max();
        let mut table = Table::new();
        // Tables at the same position keep the order of their insertion.
        table.set_position(last);
        if let Some(comments) = take_comments(document, last) {
            table.decor_mut().set_prefix(format!("{comments}\n"));
        }
        document.insert(name, Item::Table(table));
    }
    &mut document[name]
}

/// Takes the comments behind the table at a position, which are kept with what follows.
fn take_comments(document: &mut DocumentMut, position: Option<isize>) -> Option<String> {
    let Some(next) = next_table(document.as_table_mut(), position?) else {
        let comments = document.trailing().as_str().filter(|text| text.contains('#'))?.to_owned();
        document.set_trailing("");
        return Some(comments);
    };
    let prefix = next.decor().prefix()?.as_str()?.to_owned();
    // The last paragraph is about the next table.
    let (comments, rest) = prefix.rsplit_once("\n\n").filter(|(comments, _)| comments.contains('#'))?;
    next.decor_mut().set_prefix(format!("\n{rest}"));
    Some(format!("{comments}\n"))
}

/// The first table behind a position, among all tables of this one.
fn next_table(table: &mut Table, position: isize) -> Option<&mut Table> {
    let tables = table.iter_mut().flat_map(|(_, item)| match item {
        Item::Table(table) => vec![table],
        Item::ArrayOfTables(tables) => tables.iter_mut().collect(),
        _ => Vec::new(),
    });
    let is_behind = |table: &Table| table.position().is_some_and(|own| own > position);
    let found = tables.filter_map(|table| if is_behind(table) { Some(table) } else { next_table(table, position) });
    found.min_by_key(|table| table.position())
}

fn last_position(item: &Item) -> Option<isize> {
    match item {
        Item::Table(table) => table.iter().filter_map(|(_, item)| last_position(item)).chain(table.position()).max(),
        Item::ArrayOfTables(tables) => tables.iter().filter_map(Table::position).max(),
        _ => None,
    }
}

/// Position of a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In alphabetical order where the others are sorted, else last.
    Sorted,
    /// Behind the others.
    Last,
}

/// Adds an entry to a table.
///
/// # Panics
///
/// If `into` is no table.
pub fn entry(into: &mut Item, name: &str, value: Item, order: Order) {
    match (into, value) {
        (Item::Table(table), value) => in_table(table, name, value, order),
        (Item::Value(Value::InlineTable(table)), value) => {
            in_line(table, name, value.into_value().expect("BUG: what is added is a value"));
        }
        _ => unreachable!("BUG: cargo has read it as a table"),
    }
}

fn in_table(table: &mut Table, name: &str, item: Item, order: Order) {
    // Tables with their own header are elsewhere.
    let is_line = |item: &Item| item.as_table().map_or_else(|| item.is_value(), Table::is_dotted);
    let names: Vec<String> = table.iter().filter(|(_, item)| is_line(item)).map(|(name, _)| name.to_owned()).collect();
    // Default features usually come first.
    let sorted = names.strip_prefix(&["default".to_owned()]).unwrap_or(&names);
    let behind = if order == Order::Sorted && sorted.is_sorted() && sorted.len() > 1 {
        sorted.iter().position(|other| other.as_str() > name).map_or(&[][..], |at| &sorted[at..])
    } else {
        &[]
    };
    let moved: Vec<_> = behind.iter().filter_map(|name| table.remove_entry(name)).collect();
    table.insert(name, item);
    for (key, item) in moved {
        table.insert_formatted(&key, item);
    }
}

/// Adds a value to `{ … }`, whose last value has the space before the brace.
pub fn in_line(table: &mut InlineTable, name: &str, mut value: Value) {
    let last = table.iter().last().map(|(name, _)| name.to_owned());
    if let Some(last) = last.and_then(|name| table.get_mut(&name)) {
        // A value that we added has no suffix, and gets a space.
        if let Some(suffix) = last.decor().suffix().and_then(|suffix| suffix.as_str()).map(str::to_owned) {
            last.decor_mut().set_suffix("");
            value = value.decorated(" ", suffix);
        }
    }
    table.insert(name, value);
}

/// Adds a text to a list, on a line of its own where the others have theirs.
pub fn in_list(list: &mut Array, text: &str) {
    let raw = |text: Option<&toml_edit::RawString>| text.and_then(|text| text.as_str()).unwrap_or_default().to_owned();
    let mut value = Value::from(text);
    if let Some(last) = list.len().checked_sub(1).and_then(|last| list.get_mut(last)) {
        let (prefix, suffix) = (raw(last.decor().prefix()), raw(last.decor().suffix()));
        let indent = prefix.rfind('\n').map(|newline| prefix[newline..].to_owned());
        let trailing = raw(Some(list.trailing()));
        let mut new = indent.clone().unwrap_or_else(|| " ".to_owned());
        // A comment behind the last item is about that item.
        if indent.is_some() && list.trailing_comma() && trailing.contains('#') {
            let (comment, end) = trailing.rsplit_once('\n').unwrap_or((&trailing, ""));
            new = format!("{comment}{new}");
            list.set_trailing(format!("\n{end}"));
        } else if indent.is_some() && !list.trailing_comma() && !suffix.contains('#') {
            if let Some(last) = list.get_mut(list.len() - 1) {
                last.decor_mut().set_suffix("");
            }
            value.decor_mut().set_suffix(suffix);
        }
        value.decor_mut().set_prefix(new);
        if indent.is_none() && list.trailing_comma() {
            list.set_trailing_comma(false);
        }
    }
    list.push_formatted(value);
}
