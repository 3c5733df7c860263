//! Dimensions among the entries of a file.

use gpu_tuned_core::dims::{Dim, DimKind, DimValue, named};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::ModelKind;

use super::names::{KINDS, Names, SECTIONS};
use super::{Dims, Origin};
use crate::optimize::leaf::Leaf;
use crate::optimize::text::Value;

/// Reads dimensions and keeps the mistakes.
pub(super) struct Reader<'l, 'n> {
    leaves: &'l [Leaf<'n>],
    source: Source<'n>,
    pub mistakes: Vec<FileError>,
}

impl<'l, 'n> Reader<'l, 'n> {
    pub(super) fn new(leaves: &'l [Leaf<'n>], source: Source<'n>) -> Self {
        Self { leaves, source, mistakes: Vec::new() }
    }

    /// Reads every dimension of the kind that the file has and nobody said.
    pub(super) fn dims(&mut self, names: &'static Names, kind: &'static ModelKind, dims: &mut Dims) {
        for (name, aliases) in names.dims {
            let Some(dim) = named(kind.dims, name).filter(|dim| !dims.has(dim.name)) else { continue };
            let Some(leaf) = self.find(aliases, name) else { continue };
            match of_kind(dim, leaf) {
                Ok(Some(value)) => dims.put(dim.name, value, Origin::Key(leaf.shown.clone())),
                Ok(None) => {}
                Err(message) => self.mistake(leaf, message),
            }
        }
    }

    /// The entry that has one of the names: rather in a model's table, and by the first name.
    pub(super) fn find(&mut self, aliases: &[&str], dim: &str) -> Option<&'l Leaf<'n>> {
        let all = self.leaves;
        let rank = |leaf: &Leaf<'_>| {
            let own = leaf.name();
            // `sequence: { min: 7, max: 30 }`
            let name = if own == "max" { leaf.path.iter().rev().nth(1).map_or(own, String::as_str) } else { own };
            let alias = aliases.iter().position(|alias| *alias == name)?;
            let is_table = matches!(leaf.entry.node.value, Value::Table(_));
            let in_section = leaf.path.iter().rev().skip(1).any(|table| is_section(table));
            let is_said = leaf.entry.node.value != Value::Null && !leaf.entry.node.value.is_reference();
            (!is_table && is_said).then_some((!in_section, alias))
        };
        let best = all.iter().filter_map(rank).min()?;
        let mut of_rank = all.iter().filter(|leaf| rank(leaf) == Some(best));
        let first = of_rank.next()?;
        if let Some(other) = of_rank.find(|other| other.entry.node.value != first.entry.node.value) {
            let name = dim.trim_matches(['{', '}']);
            let message =
                format!("`{}` and `{}` both look like the model's {name}; say it with --dim", first.shown, other.shown);
            self.mistake(other, message);
        }
        Some(first)
    }

    /// Whole numbers: one, or a list of them.
    pub(super) fn counts(&mut self, aliases: &[&str], dim: &str) -> Option<(Vec<u64>, String)> {
        let leaf = self.find(aliases, dim)?;
        let counts = match &leaf.entry.node.value {
            Value::List(nodes) => nodes.iter().map(|node| node.value.count()).collect::<Option<Vec<_>>>(),
            one => one.count().map(|count| vec![count]),
        };
        let counts = counts.filter(|all| !all.is_empty() && all.iter().all(|count| (1..=1 << 20).contains(count)));
        if counts.is_none() {
            self.mistake(leaf, format!("`{}`: expected whole numbers from 1 to 2^20", leaf.shown));
        }
        counts.map(|counts| (counts, leaf.shown.clone()))
    }

    fn mistake(&mut self, leaf: &Leaf<'_>, message: String) {
        let mistake = self.source.error(&leaf.entry.node.span, message);
        self.mistakes.push(mistake);
    }

    /// The message at the value of a key.
    pub(super) fn error_at(&self, shown: &str, message: &str) -> Option<FileError> {
        let leaf = self.leaves.iter().find(|leaf| leaf.shown == shown)?;
        Some(self.source.error(&leaf.entry.node.span, message))
    }
}

/// Whether a table is of a model: by its name, or by that of a kind.
fn is_section(table: &str) -> bool {
    SECTIONS.contains(&table) || KINDS.iter().any(|names| names.words.contains(&table))
}

/// The value as the dimension has it; `None` where the file leaves it open.
fn of_kind(dim: &Dim, leaf: &Leaf<'_>) -> Result<Option<DimValue>, String> {
    let value = &leaf.entry.node.value;
    let expected = || Err(format!("`{}`: expected {}, found {}", leaf.shown, dim.kind.expected(), value.kind()));
    let read = match (&dim.kind, value) {
        // Of several lengths the largest takes the most; of several features each counts.
        (DimKind::Count(_), Value::List(nodes)) if dim.name == "seq" => {
            nodes.iter().map(|node| node.value.count()).max().flatten().map(DimValue::Count)
        }
        (DimKind::Count(_), Value::List(nodes)) if dim.name == "inputs" => Some(DimValue::Count(nodes.len() as u64)),
        (DimKind::Count(_), Value::List(nodes)) if dim.name == "image" => {
            let sides: Option<Vec<_>> = nodes.iter().map(|node| node.value.count()).collect();
            return side(leaf, sides.as_deref()).map(Some);
        }
        (DimKind::Count(_), Value::Number(digits)) => match value.count() {
            Some(count) => Some(DimValue::Count(count)),
            None => return Err(format!("`{}`: expected a whole number, found {digits}", leaf.shown)),
        },
        (DimKind::Flag, Value::Flag(flag)) => Some(DimValue::Flag(*flag)),
        // `dropout: 0.1`
        (DimKind::Flag, Value::Number(digits)) => digits.parse().ok().map(|share: f64| DimValue::Flag(share > 0.0)),
        (DimKind::Choice(choices), Value::Text(text)) => {
            let text = text.to_ascii_lowercase();
            return Ok(choices.names.iter().find(|(name, _)| *name == text).map(|_| DimValue::Choice(text)));
        }
        _ => None,
    };
    read.map_or_else(expected, |read| Ok(Some(read)))
}

/// The side of a square image.
fn side(leaf: &Leaf<'_>, sides: Option<&[u64]>) -> Result<DimValue, String> {
    match sides {
        Some([side]) => Ok(DimValue::Count(*side)),
        Some([height, width]) if height == width => Ok(DimValue::Count(*height)),
        Some([height, width]) => Err(format!(
            "`{}`: dimensions describe square images; say the side of a square with as many pixels: --dim image={}",
            leaf.shown,
            ((height * width) as f64).sqrt().round()
        )),
        Some([_, _, _]) => Err(format!(
            "`{}`: no kind of model is described by its dimensions over volumes; state its costs (--model declared --dim …), \
             or measure it and name it with --workload",
            leaf.shown
        )),
        _ => Err(format!("`{}`: expected the side of a square image in pixels", leaf.shown)),
    }
}

/// Dimensions that models of any kind have.
const TELLS_LITTLE: &[&str] =
    &["classes", "seq", "dropout", "bias", "outputs", "{outputs}", "batch_statistics", "tied_head"];

/// The kinds that a file without evidence could be of: those whose first dimensions it has.
pub(super) fn readings(leaves: &[Leaf<'_>]) -> Vec<String> {
    let has = |names: &&Names| {
        let named = |aliases: &[&str]| leaves.iter().find(|leaf| aliases.contains(&leaf.name()));
        let found: Vec<_> = names
            .dims
            .iter()
            .filter(|(dim, _)| !TELLS_LITTLE.contains(dim))
            .filter_map(|(_, aliases)| named(aliases))
            .collect();
        (found.len() > 1).then(|| {
            let keys: Vec<_> = found.iter().map(|leaf| leaf.shown.as_str()).collect();
            format!("{} ({})", names.kind, keys.join(", "))
        })
    };
    KINDS.iter().filter_map(|names| has(&names)).collect()
}
