//! The settings that a config has, and where.

use std::ops::RangeInclusive;

use gpu_tuned_core::Setting;
use gpu_tuned_core::source::{FileError, Source};

use super::keys::{Family, KEYS, Key, Role, Spelling, known};
use super::leaf::Leaf;
use super::text::Value;

/// A key of the file that is a known one.
#[derive(Clone, Debug)]
pub(super) struct Found<'n> {
    pub role: Role,
    pub spelling: Spelling,
    pub leaf: Leaf<'n>,
    pub of: Family,
}

/// The known keys of a file.
pub(super) struct AllFound<'n> {
    pub source: Source<'n>,
    pub all: Vec<Found<'n>>,
    pub mistakes: Vec<FileError>,
}

/// What `--at` says a setting's key is.
pub(super) struct At {
    pub role: Role,
    pub key: String,
}

impl Role {
    /// The roles that `--at` may name, as it names them.
    pub(super) const NAMED: [(&'static str, Self); 10] = [
        (Setting::BatchSize.name(), Self::Batch),
        ("global_batch", Self::GlobalBatch),
        (Setting::GradientAccumulation.name(), Self::Accumulation),
        (Setting::NumWorkers.name(), Self::Workers),
        (Setting::PrefetchDepth.name(), Self::Prefetch),
        (Setting::Precision.name(), Self::Precision),
        (Setting::AllowTf32.name(), Self::Tf32),
        (Setting::GradientCheckpointing.name(), Self::Checkpointing),
        (Setting::EvalBatchSize.name(), Self::EvalBatch),
        ("train_samples", Self::Samples),
    ];

    /// How `--at` names it.
    pub(super) fn name(self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(_, role)| *role == self).map(|(name, _)| *name)
    }
}

impl<'n> AllFound<'n> {
    /// Finds the known keys. What `--at` says is of a setting is, and nothing else is of that setting.
    pub(super) fn among(leaves: &[Leaf<'n>], source: Source<'n>, said: &[At]) -> Self {
        let mut all: Vec<Found<'n>> = leaves
            .iter()
            .filter_map(|leaf| {
                let at = said.iter().find(|at| at.key == leaf.shown);
                let key = match at {
                    Some(at) => KEYS.iter().find(|key| key.role == at.role),
                    None => known(&leaf.path),
                }?;
                let own = known(&leaf.path).filter(|own| own.role == key.role).unwrap_or(key);
                let is_other = at.is_none() && said.iter().any(|at| at.role == key.role);
                (!is_other && is_usable(leaf, own, at.is_some())).then(|| Found::of(own, leaf.clone()))
            })
            .collect();
        // Beside the micro-batch it is the global one, as DeepSpeed has it.
        let batches = all.iter().filter(|found| found.role == Role::Batch).count();
        if batches > 1 {
            let ambiguous = all.iter_mut().find(|found| found.leaf.name() == "train_batch_size");
            if let Some(found) = ambiguous {
                found.role = Role::GlobalBatch;
            }
        }
        Self { source, all, mistakes: Vec::new() }
    }

    /// All of a role.
    pub(super) fn of(&self, role: Role) -> impl Iterator<Item = &Found<'n>> {
        self.all.iter().filter(move |found| found.role == role)
    }

    /// The only one of a role; that there are several is a mistake.
    pub(super) fn one(&mut self, role: Role) -> Option<Found<'n>> {
        let mut of_role = self.of(role).take(2).cloned().collect::<Vec<_>>().into_iter();
        let (first, second) = (of_role.next(), of_role.next());
        if let (Some(first), Some(second), Some(name)) = (&first, &second, role.name()) {
            let message = format!(
                "`{}` and `{}` both look like the {name} of training; say which is: --at {name}={}",
                first.leaf.shown, second.leaf.shown, first.leaf.shown
            );
            let mistake = self.source.error(&second.leaf.entry.key_span, message);
            self.mistakes.push(mistake);
        }
        first
    }

    /// The number of a role, where the file says one.
    pub(super) fn count(&mut self, role: Role, range: RangeInclusive<u64>) -> Option<u64> {
        let found = self.one(role)?;
        let read = found.count(range, self.source);
        self.kept(read)
    }

    /// The value of a reading; its mistake is kept.
    pub(super) fn kept<T>(&mut self, read: Result<Option<T>, FileError>) -> Option<T> {
        read.unwrap_or_else(|mistake| {
            self.mistakes.push(mistake);
            None
        })
    }
}

/// Whether the value could be one: tables of other things have names of settings, too.
fn is_usable(leaf: &Leaf<'_>, key: &Key, is_said: bool) -> bool {
    if leaf.entry.node.value.is_reference() {
        return false;
    }
    match key.role {
        Role::Ranks | Role::RanksOfNode | Role::Nodes => !matches!(leaf.entry.node.value, Value::Table(_)),
        Role::Samples if !is_said => is_number_of_samples(leaf),
        _ => leaf.is_single(),
    }
}

/// Whether it is the size of a whole data set: neither a share, such as 0.8, nor one of the parts in a list.
fn is_number_of_samples(leaf: &Leaf<'_>) -> bool {
    leaf.entry.node.value.count().is_some_and(|count| count > 1) && !leaf.shown.contains('[')
}

impl<'n> Found<'n> {
    fn of(key: &Key, leaf: Leaf<'n>) -> Self {
        let spelling = match (key.spelling, &leaf.entry.node.value) {
            // `mixed_precision: true`
            (Spelling::Precision(_), Value::Flag(true)) => Spelling::FlagFor(gpu_tuned_core::Precision::MixedF16),
            (spelling, _) => spelling,
        };
        Self { role: key.role, spelling, leaf, of: key.of }
    }

    /// Its value as the file has it.
    pub(super) fn raw<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.leaf.entry.node.span.clone()).unwrap_or_default()
    }

    /// The number that it is; `None` where it leaves that to somebody else.
    pub(super) fn count(&self, range: RangeInclusive<u64>, source: Source<'_>) -> Result<Option<u64>, FileError> {
        let value = &self.leaf.entry.node.value;
        let is_open = match value {
            Value::Null => true,
            Value::Text(text) => text == "auto",
            _ => false,
        };
        if is_open {
            return Ok(None);
        }
        let count = value.count().filter(|count| range.contains(count));
        count.map(Some).ok_or_else(|| {
            let found = match value {
                Value::Number(digits) => digits.as_str(),
                other => other.kind(),
            };
            let most = *range.end();
            let most =
                if most.is_power_of_two() && most > 1 << 16 { format!("2^{}", most.ilog2()) } else { most.to_string() };
            let message = format!(
                "`{}`: expected a whole number from {} to {most}, found {found}",
                self.leaf.shown,
                range.start()
            );
            source.error(&self.place(), message)
        })
    }

    /// Whether it is on; numbers 0 and 1 are flags, too.
    pub(super) fn flag(&self, source: Source<'_>) -> Result<Option<bool>, FileError> {
        let value = &self.leaf.entry.node.value;
        match value {
            Value::Null => Ok(None),
            Value::Flag(flag) => Ok(Some(*flag)),
            Value::Number(digits) if digits == "0" || digits == "1" => Ok(Some(digits == "1")),
            // As axolotl has it: where the GPU has bf16. In DeepSpeed's tables it is what somebody else says.
            Value::Text(text) if text == "auto" => Ok((self.leaf.name() == "bf16").then_some(true)),
            Value::Text(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Ok(Some(true)),
                "false" | "no" | "off" => Ok(Some(false)),
                _ => Err(self.no_flag(source, &format!("`{text}`"))),
            },
            Value::Number(digits) => Err(self.no_flag(source, digits)),
            Value::List(_) | Value::Table(_) => Err(self.no_flag(source, value.kind())),
        }
    }

    fn no_flag(&self, source: Source<'_>, found: &str) -> FileError {
        source.error(&self.place(), format!("`{}`: expected true or false, found {found}", self.leaf.shown))
    }

    /// Where its value is, or its key where the value is nothing.
    pub(super) fn place(&self) -> std::ops::Range<usize> {
        let entry = self.leaf.entry;
        if entry.node.span.is_empty() { entry.key_span.clone() } else { entry.node.span.clone() }
    }
}
