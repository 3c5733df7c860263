//! JSON schema of `gpu-tuned.toml`, for editors.

use gpu_tuned_core::Goal;
use gpu_tuned_core::dims::{Choices, Dim, DimKind, PRODUCT_KEYS, Presence, Schema};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::{ModelKind, Training};
use toml::{Table, Value};

use crate::config::ConfigFile;

/// Pattern of a percentage below 100%.
const PERCENTAGE: &str = "^[0-9]{1,2}(\\.[0-9]+)? *%$";

/// Builds the schema (draft 7) from the tables of keys that parse the file, and from the shipped profiles.
pub fn config_schema() -> Table {
    let by_name = |entry: Table| of_type("object", [("additionalProperties", entry.into())]);
    let sections =
        [("goal", object(dims(Goal::DIMS), [])), ("workload", by_name(workload())), ("profile", by_name(profile()))];
    let mut schema = object(sections.map(|(name, section)| (name.to_owned(), section)), []);
    schema.insert("$schema".to_owned(), "http://json-schema.org/draft-07/schema#".into());
    // Another schema does not begin so.
    schema.insert("$comment".to_owned(), ConfigFile::NAME.into());
    schema.insert("title".to_owned(), ConfigFile::NAME.into());
    schema
}

/// A workload: keys of the training, and the dimensions of one model or costs.
fn workload() -> Table {
    let stated = &ModelKind::ALL[0];
    let of_kind = |kind: &ModelKind| {
        let mut model = object(dims(kind.dims), required(kind.dims));
        model.insert("description".to_owned(), kind.meaning.into());
        (kind.name.to_owned(), model)
    };
    let kinds = ModelKind::ALL.iter().map(of_kind);
    let mut workload = object(dims(Training::DIMS).chain(dims(stated.dims)).chain(kinds), []);
    let one_kind = ModelKind::ALL.iter().map(|kind| requires([kind.name]));
    let choices: Vec<Value> = one_kind.chain([requires(required(stated.dims))]).collect();
    workload.insert("oneOf".to_owned(), choices.into());
    workload
}

fn requires<'k>(keys: impl IntoIterator<Item = &'k str>) -> Value {
    Table::from_iter([("required".to_owned(), strings(keys))]).into()
}

/// A profile: the keys and types of the shipped ones, and the base of a user's own.
fn profile() -> Table {
    let mut all = Table::new();
    for profile in ProfileTable::builtin().iter() {
        add_types(&mut all, &profile.to_table());
    }
    all.remove("id");
    all.insert("base".to_owned(), of_type("string", [("description", "profile with the other figures".into())]).into());
    for name in ["unknown", "estimated", "pci_ids_shared_with"] {
        all.entry(name).or_insert_with(|| of_type("array", []).into());
    }
    closed(all, [])
}

/// Adds the types of a table's values to the properties of a schema.
fn add_types(properties: &mut Table, values: &Table) {
    for (name, value) in values {
        let schema = properties.entry(name).or_insert_with(|| match value {
            Value::Table(_) => closed(Table::new(), []).into(),
            Value::Array(_) => of_type("array", []).into(),
            Value::Integer(_) => of_type("integer", []).into(),
            Value::Float(_) => of_type("number", []).into(),
            Value::Boolean(_) => of_type("boolean", []).into(),
            _ => of_type("string", []).into(),
        });
        if let (Value::Table(inner), Some(Value::Table(known))) = (value, schema.get_mut("properties")) {
            add_types(known, inner);
        }
    }
}

fn dims(dims: &'static [Dim]) -> impl Iterator<Item = (String, Table)> {
    dims.iter().map(|dim| {
        let mut schema = value(&dim.kind);
        schema.insert("description".to_owned(), dim.meaning.into());
        (dim.name.to_owned(), schema)
    })
}

fn required(dims: &'static [Dim]) -> impl Iterator<Item = &'static str> {
    dims.iter().filter(|dim| dim.presence == Presence::Required).map(|dim| dim.name)
}

/// Schema of one value.
fn value(kind: &DimKind) -> Table {
    // TOML has no larger integers.
    let whole = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let count = |least: u64, most: u64| of_type("integer", [("minimum", whole(least)), ("maximum", whole(most))]);
    let list = |item: Table, extra: [(&str, Value); 2]| {
        let mut list = of_type("array", extra);
        list.insert("items".to_owned(), item.into());
        list
    };
    let any_length = [("minItems", 0.into()), ("maxItems", 4096.into())];
    match kind {
        DimKind::Count(range) => count(*range.start(), *range.end()),
        DimKind::Flag => of_type("boolean", []),
        DimKind::Number(range) => {
            let number = of_type("number", [("minimum", (*range.start()).into()), ("maximum", (*range.end()).into())]);
            if *range.end() > 1.0 {
                return number;
            }
            let percentage = of_type("string", [("pattern", PERCENTAGE.into())]);
            Table::from_iter([("anyOf".to_owned(), Value::Array(vec![number.into(), percentage.into()]))])
        }
        DimKind::Choice(choices) => choice(choices),
        DimKind::ChoiceList(choices) => list(choice(choices), any_length),
        DimKind::Counts(range) => list(count(*range.start(), *range.end()), any_length),
        DimKind::Stages => {
            let pair = list(count(1, 16_384), [("minItems", 2.into()), ("maxItems", 2.into())]);
            list(pair, any_length)
        }
        DimKind::Product => {
            let sizes = PRODUCT_KEYS.map(|name| (name.to_owned(), count(1, 1 << 32)));
            object(sizes, PRODUCT_KEYS)
        }
    }
}

fn choice(choices: &Choices) -> Table {
    Table::from_iter([("enum".to_owned(), strings(choices.names.iter().map(|(name, _)| *name)))])
}

/// A table with these keys and no others.
fn object<'k>(
    properties: impl IntoIterator<Item = (String, Table)>,
    required: impl IntoIterator<Item = &'k str>,
) -> Table {
    closed(properties.into_iter().map(|(name, schema)| (name, schema.into())).collect(), required)
}

fn closed<'k>(properties: Table, required: impl IntoIterator<Item = &'k str>) -> Table {
    let extra =
        [("properties", properties.into()), ("required", strings(required)), ("additionalProperties", false.into())];
    of_type("object", extra)
}

fn of_type<const N: usize>(name: &str, others: [(&str, Value); N]) -> Table {
    [("type", name.into())].into_iter().chain(others).map(|(key, value)| (key.to_owned(), value)).collect()
}

fn strings<'k>(texts: impl IntoIterator<Item = &'k str>) -> Value {
    texts.into_iter().map(Value::from).collect::<Vec<_>>().into()
}
