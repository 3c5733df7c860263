//! What a config says of its training.

use gpu_tuned_core::Precision;
use gpu_tuned_core::source::FileError;
use gpu_tuned_core::workload::Optimizer;
use serde::Serialize;

use super::found::{AllFound, At, Found};
use super::keys::{Family, Role, Spelling};
use super::leaf::Leaf;
use super::precision;
use super::text::Value;
use gpu_tuned_core::source::Source;

/// The largest batch, as goals have it.
const LARGEST_BATCH: u64 = 1 << 30;

/// The largest data set.
const MOST_SAMPLES: u64 = 1 << 40;

/// The data set that is trained on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct DataSet {
    pub samples: u64,
    /// The key that says so.
    pub key: String,
    /// Whether the command line has named that key.
    #[serde(skip)]
    pub is_said: bool,
}

impl DataSet {
    /// Whether it can be what such steps are of: fewer samples than a step has are those of something else, unless that was
    /// said.
    pub(super) const fn counts(&self, step: u64) -> bool {
        self.is_said || self.samples >= step
    }
}

/// What a config says, and where.
pub(super) struct Config<'n> {
    pub found: AllFound<'n>,
    pub family: Family,
    /// Samples of a micro-batch.
    pub batch: Option<u64>,
    pub accumulation: Option<u64>,
    /// The global batch, where a key says it.
    pub global_batch: Option<u64>,
    /// Devices that train together, where the file says how many.
    pub ranks: Option<u64>,
    pub workers: Option<u64>,
    /// As its key counts them.
    pub prefetch: Option<u64>,
    pub precision: Precision,
    pub tf32: Option<bool>,
    pub checkpointing: Option<bool>,
    pub optimizer: Option<Optimizer>,
    pub data_set: Option<DataSet>,
}

impl<'n> Config<'n> {
    /// Reads the settings among the entries of a file, or says all that is wrong with them.
    pub(super) fn read(leaves: &[Leaf<'n>], source: Source<'n>, said: &[At]) -> Result<Self, Vec<FileError>> {
        let mut found = AllFound::among(leaves, source, said);
        let mut config = Self {
            family: family(leaves, &found),
            batch: found.count(Role::Batch, 1..=LARGEST_BATCH),
            accumulation: found.count(Role::Accumulation, 1..=LARGEST_BATCH),
            global_batch: found.count(Role::GlobalBatch, 1..=LARGEST_BATCH),
            ranks: ranks(&mut found),
            workers: found.count(Role::Workers, 0..=4096),
            prefetch: found.count(Role::Prefetch, 0..=1 << 16),
            precision: precision::read(&mut found),
            tf32: tf32(&mut found),
            checkpointing: checkpointing(&mut found),
            optimizer: optimizer(leaves, &found),
            data_set: None,
            found: AllFound { source, all: Vec::new(), mistakes: Vec::new() },
        };
        config.data_set =
            data_set(&mut found, config.batch.unwrap_or(1), said.iter().any(|at| at.role == Role::Samples));
        evaluations(&mut found);
        if found.mistakes.is_empty() { Ok(Self { found, ..config }) } else { Err(found.mistakes) }
    }

    /// The key of a role, where the file has one.
    pub(super) fn key(&self, role: Role) -> Option<&Found<'n>> {
        self.found.of(role).next()
    }

    /// Batches that are prepared ahead: PyTorch counts them for each worker.
    pub(super) fn prefetch_depth(&self) -> Option<u64> {
        let each = self.prefetch?;
        let is_per_worker = self.key(Role::Prefetch).is_some_and(|found| found.spelling == Spelling::CountPerWorker);
        Some(if is_per_worker { each.saturating_mul(self.workers.unwrap_or(0).max(1)) } else { each })
    }
}

/// Whose programs read the file.
fn family(leaves: &[Leaf<'_>], found: &AllFound<'_>) -> Family {
    let has = |family: Family| found.all.iter().any(|one| one.of == family);
    let is_trainers = |leaf: &Leaf<'_>| {
        leaf.path.iter().rev().nth(1).is_some_and(|table| table == "trainer")
            && ["max_epochs", "max_steps", "accelerator"].contains(&leaf.name())
    };
    if has(Family::HuggingFace) {
        Family::HuggingFace
    } else if has(Family::Lightning) || leaves.iter().any(is_trainers) {
        Family::Lightning
    } else {
        Family::Any
    }
}

/// The devices of one machine times the machines; or all, where a key says that.
fn ranks(found: &mut AllFound<'_>) -> Option<u64> {
    let source = found.source;
    let mut product = |role: Role| {
        let one = found.of(role).next().cloned()?;
        let read = devices(&one, source);
        found.kept(read)
    };
    let all = product(Role::Ranks);
    let (devices, nodes) = (product(Role::RanksOfNode), product(Role::Nodes));
    all.or_else(|| {
        (devices.is_some() || nodes.is_some()).then(|| devices.unwrap_or(1).saturating_mul(nodes.unwrap_or(1)))
    })
}

/// Devices as trainers have them: a number, a list, or a word for what there is.
fn devices(found: &Found<'_>, source: Source<'_>) -> Result<Option<u64>, FileError> {
    match &found.leaf.entry.node.value {
        Value::List(devices) => Ok(Some(devices.len().max(1) as u64)),
        Value::Text(text) if text.contains(',') => {
            Ok(Some(text.split(',').filter(|one| !one.trim().is_empty()).count().max(1) as u64))
        }
        // All that there are, however many that is; or a single one by its number.
        Value::Text(_) | Value::Flag(_) => Ok(None),
        Value::Number(digits) if digits == "-1" || digits == "0" => Ok(None),
        _ => found.count(1..=1 << 20, source),
    }
}

fn tf32(found: &mut AllFound<'_>) -> Option<bool> {
    let source = found.source;
    let one = found.one(Role::Tf32)?;
    let read = match (&one.spelling, &one.leaf.entry.node.value) {
        (Spelling::Words { no, .. }, Value::Text(text)) => Ok(Some(!no.contains(&text.as_str()))),
        _ => one.flag(source),
    };
    found.kept(read)
}

fn checkpointing(found: &mut AllFound<'_>) -> Option<bool> {
    let source = found.source;
    let read = found.one(Role::Checkpointing)?.flag(source);
    found.kept(read)
}

/// How many samples there are; the fewest, where several keys say so, as some of them count evaluation, too. Fewer than a
/// batch has are those of something else.
fn data_set(found: &mut AllFound<'_>, batch: u64, is_said: bool) -> Option<DataSet> {
    let source = found.source;
    let all: Vec<_> = found.of(Role::Samples).cloned().collect();
    let read = all.into_iter().filter_map(|one| {
        let samples = found.kept(one.count(2..=MOST_SAMPLES, source))?;
        Some(DataSet { samples, key: one.leaf.shown, is_said })
    });
    read.filter(|set| set.counts(batch)).min_by_key(|set| set.samples)
}

/// Looks at the batches of evaluations: of validation there is one, and of tests.
fn evaluations(found: &mut AllFound<'_>) {
    let source = found.source;
    let mistakes: Vec<_> =
        found.of(Role::EvalBatch).filter_map(|one| one.count(1..=LARGEST_BATCH, source).err()).collect();
    found.mistakes.extend(mistakes);
}

/// What names of optimizers contain; the first that is in one counts.
const OPTIMIZERS: [(&str, Optimizer); 6] = [
    ("adamw", Optimizer::AdamW),
    ("adafactor", Optimizer::Adafactor),
    ("muon", Optimizer::Muon),
    ("adam", Optimizer::Adam),
    ("momentum", Optimizer::Momentum),
    ("sgd", Optimizer::Sgd),
];

fn optimizer(leaves: &[Leaf<'_>], found: &AllFound<'_>) -> Option<Optimizer> {
    let named = found.of(Role::Optimizer).find_map(|one| match &one.leaf.entry.node.value {
        Value::Text(text) => {
            let text = text.to_ascii_lowercase();
            OPTIMIZERS.iter().find(|(name, _)| text.contains(name)).map(|(_, optimizer)| *optimizer)
        }
        _ => None,
    });
    let has_momentum = leaves.iter().any(|leaf| {
        let number = match &leaf.entry.node.value {
            Value::Number(digits) => digits.parse().unwrap_or(0.0),
            _ => 0.0,
        };
        leaf.name() == "momentum" && number > 0.0
    });
    named.map(|optimizer| if optimizer == Optimizer::Sgd && has_momentum { Optimizer::Momentum } else { optimizer })
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::source::Source;

    use super::super::found::At;
    use super::super::keys::Role;
    use super::super::leaf::leaves;
    use super::super::text::Format;
    use super::Config;

    /// The samples that a config is read to have, or what is wrong with it.
    fn samples(text: &str, said: &[At]) -> Result<Option<(u64, String)>, String> {
        let source = Source { file: "config", text };
        let root = Format::Yaml.parse(source).expect("it is YAML");
        let config = Config::read(&leaves(&root), source, said).map_err(|mistakes| mistakes[0].message.clone())?;
        Ok(config.data_set.map(|set| (set.samples, set.key)))
    }

    #[test]
    fn keys_that_count_the_training_samples_are_recognised() {
        for (text, samples_and_key) in [
            ("num_samples: 1500", Some((1500, "num_samples"))),
            ("data: {numTrainSamples: 60_000}", Some((60_000, "data.numTrainSamples"))),
            ("train:\n  train_size: 45000", Some((45_000, "train.train_size"))),
            ("dataset: {size: 1797}", Some((1797, "dataset.size"))),
            ("dataset_size: 50000\nn_train: 45000", Some((45_000, "n_train"))),
            // Shares, flags, and what is left open.
            ("train_size: 0.8", None),
            ("train_size: 1.0", None),
            ("train_size: 1", None),
            ("num_samples: -1", None),
            ("max_train_samples: null", None),
            ("num_samples: ${data.samples}", None),
            // Of something else, and of a part.
            ("model: {size: 1797}", None),
            ("val: {num_samples: 1500}", None),
            ("batch_size: 64\nn_samples: 16", None),
            ("batch_size: 64\nn_samples: 16\ndataset_size: 900", Some((900, "dataset_size"))),
            ("parts: [{num_samples: 1500}, {num_samples: 9}]", None),
        ] {
            let expected = samples_and_key.map(|(samples, key)| (samples, key.to_owned()));
            assert_eq!(samples(text, &[]), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_said_to_count_the_samples_does_and_nothing_else() {
        let said = |key: &str| [At { role: Role::Samples, key: key.to_owned() }];
        let text = "windows: 900\nnum_samples: 10\nshare: 0.8";
        assert_eq!(samples(text, &said("windows")), Ok(Some((900, "windows".to_owned()))));
        let refused = samples(text, &said("share")).expect_err("a share is no number of samples");
        assert_eq!(refused, "`share`: expected a whole number from 2 to 2^40, found 0.8");
    }
}
