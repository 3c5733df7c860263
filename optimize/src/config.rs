//! The training settings of a config.

use gpu_tuned_core::Precision;
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::Optimizer;

use crate::data_set::{DataSet, data_set};
use crate::dialect::{Dialect, Role, Spelling};
use crate::document::{ConfigText, Value};
use crate::entry::ConfigEntry;
use crate::error::{MOST_MISTAKES, OptimizeError};
use crate::index::{Index, other_file};
use crate::matched::{MatchedKey, MatchedKeys, Meaning};
use crate::model::use_of_micro_batch;
use crate::names::{Names, optimizer_in};
use crate::overrides::KeyOverride;
use crate::precision;

/// Largest batch, in samples.
pub(crate) const MAX_BATCH: u64 = 1 << 30;

/// The training settings of a config and their keys.
pub struct Config {
    pub(crate) file: ConfigText,
    /// The ecosystem of the file.
    pub dialect: &'static Dialect,
    pub(crate) keys: Vec<MatchedKey>,
    pub(crate) batch: Option<u64>,
    pub(crate) accumulation: Option<u64>,
    /// Samples of an optimizer step over all devices.
    pub(crate) global_batch: Option<u64>,
    /// Devices that train together.
    pub ranks: Option<u64>,
    /// Key that leaves the number of devices open: its own, or that of a step whose parts depend on it.
    open_ranks: Option<String>,
    /// Loader workers.
    pub workers: Option<u64>,
    /// Batches prepared ahead, in the unit of its key.
    prefetch: Option<u64>,
    pub(crate) precision: Precision,
    /// TF32 in products of fp32.
    pub tf32: Option<bool>,
    pub(crate) checkpointing: Option<bool>,
    /// The optimizer, where a key names one.
    pub optimizer: Option<Optimizer>,
    pub(crate) data_set: Option<DataSet>,
    /// What the samples of a micro-batch change beside the rounding.
    pub(crate) use_of_micro_batch: Option<&'static str>,
    /// True if keys besides the batch identify a training config.
    pub is_training: bool,
}

impl Config {
    /// Reads the settings among the entries of a file.
    ///
    /// # Errors
    ///
    /// All mistakes in the values, with their places; a file of another kind.
    pub fn read(entries: &[ConfigEntry], file: &ConfigText, overrides: &[KeyOverride]) -> Result<Self, OptimizeError> {
        let index = Index::new(entries);
        if let Some(kind) = other_file(&index).filter(|_| overrides.is_empty()) {
            return Err(OptimizeError::NotTraining { found: format!("it looks like {kind}") });
        }
        let mut keys = MatchedKeys::new(&index, file, overrides);
        let batch = keys.count(Role::Batch, 1..=MAX_BATCH);
        let (ranks, open_ranks) = ranks(&mut keys);
        let is_assigned = overrides.iter().any(|it| it.role == Some(Role::Samples));
        let config = Self {
            file: file.clone(),
            dialect: keys.dialect,
            batch,
            accumulation: keys.count(Role::Accumulation, 1..=MAX_BATCH),
            global_batch: keys.count(Role::GlobalBatch, 1..=MAX_BATCH).or_else(|| {
                let default = keys.dialect.default_of(Role::GlobalBatch, "");
                default.and_then(|default| default.parse().ok())
            }),
            ranks,
            open_ranks,
            workers: keys.count(Role::Workers, 0..=4096),
            prefetch: keys.count(Role::Prefetch, 0..=1 << 16),
            precision: precision::read(&mut keys),
            tf32: keys.flag(Role::Tf32),
            checkpointing: keys.flag(Role::Checkpointing),
            optimizer: optimizer(entries, &mut keys),
            data_set: data_set(&mut keys, batch.unwrap_or(1), is_assigned),
            use_of_micro_batch: use_of_micro_batch(entries),
            is_training: !overrides.is_empty() || is_training(entries, &keys),
            keys: Vec::new(),
        };
        let source = keys.source;
        let of_evaluations = keys.with_role(Role::EvalBatch);
        let mistakes = of_evaluations.filter_map(|key| key.count(1..=MAX_BATCH, source).err());
        let mut mistakes: Vec<_> = mistakes.take(MOST_MISTAKES).collect();
        let unmodelled = |key: &&MatchedKey| !key.is_left && matches!(key.meaning(source.text), Meaning::Unknown);
        let methods = keys.with_role(Role::Method).filter(unmodelled);
        mistakes.extend(methods.take(MOST_MISTAKES).map(|key| key.unknown(source)));
        keys.mistakes.extend(mistakes);
        match keys.mistakes.is_empty() {
            true => {
                let config = Self { keys: keys.all, ..config };
                let open_ranks = config.open_ranks.clone().or_else(|| config.step_of_unknown_ranks());
                Ok(Self { open_ranks, ..config })
            }
            false if config.is_training && (!config.dialect.is_plain() || keys.has_step) => {
                Err(file.mistakes(keys.mistakes))
            }
            false => Err(OptimizeError::NotTraining { found: String::new() }),
        }
    }

    /// Key of a global batch that devices share in micro-batches, where no key has their number.
    fn step_of_unknown_ranks(&self) -> Option<String> {
        let is_shared = |key: &&MatchedKey| !matches!(key.spelling, Spelling::Nominal | Spelling::CountPerRank);
        let key = self.matched(Role::GlobalBatch).filter(is_shared)?;
        (self.ranks.is_none() && self.key(Role::Batch).is_some()).then(|| key.entry.shown.clone())
    }

    pub(crate) fn with_role(&self, role: Role) -> impl Iterator<Item = &MatchedKey> {
        self.keys.iter().filter(move |key| key.role == role)
    }

    /// Samples of an optimizer step by the key of the global batch, which can count those of each device.
    pub(crate) fn global_batch_of(&self, ranks: u64) -> Option<u64> {
        let is_per_rank = self.matched(Role::GlobalBatch).is_some_and(|key| key.spelling == Spelling::CountPerRank);
        self.global_batch.map(|global| if is_per_rank { global.saturating_mul(ranks) } else { global })
    }

    /// Returns true if the file leaves the micro-batch to the program.
    pub(crate) fn leaves_micro_batch(&self) -> bool {
        self.matched(Role::Batch).is_some_and(MatchedKey::is_open) && self.accumulation.is_none()
    }

    /// A mistake at the key of a role.
    pub(crate) fn mistake(&self, role: Role, message: String) -> OptimizeError {
        let place = self.matched(role).map_or(0..0, |key| key.entry.key_span.clone());
        self.file.mistakes(vec![self.file.source().error(&place, message)])
    }

    /// First key of a role.
    pub(crate) fn matched(&self, role: Role) -> Option<&MatchedKey> {
        self.with_role(role).min_by_key(|key| key.row.mirror)
    }

    /// Names of the keys of a role.
    pub fn keys(&self, role: Role) -> impl Iterator<Item = &str> {
        self.with_role(role).map(|key| key.entry.shown.as_str())
    }

    /// Name of the first key of a role.
    pub fn key(&self, role: Role) -> Option<&str> {
        self.matched(role).map(|key| key.entry.shown.as_str())
    }

    /// Returns true if the user leaves a key of a role alone.
    pub(crate) fn leaves(&self, role: Role) -> bool {
        self.with_role(role).any(|key| key.is_left)
    }

    /// Returns true if the samples of a micro-batch have to stay.
    pub(crate) fn leaves_step(&self) -> bool {
        self.keys.iter().any(|key| key.is_left && key.role.is_of_step())
    }

    /// Returns true if the file can express a setting: with a key, or one that programs of the dialect read.
    pub(crate) fn can_set(&self, role: Role, add_keys: bool) -> bool {
        let is_added = || self.dialect.addition(role).is_some() && (add_keys || !self.dialect.adds_on_request);
        if self.key(role).is_some() { !self.leaves(role) } else { is_added() }
    }

    /// The key and value that name the model's file.
    pub fn model_file(&self) -> Option<String> {
        let named = |key: &MatchedKey| match &key.entry.value {
            Value::Text(text) => Some(format!("`{} = {text}`", key.entry.shown)),
            _ => None,
        };
        self.with_role(Role::ModelFile).find_map(named)
    }

    /// Key that leaves the precision to the program, where no other key gives it.
    pub(crate) fn open_precision(&self) -> Option<&str> {
        let is_auto = |key: &&MatchedKey| key.entry.value == Value::Text("auto".to_owned()) && !key.row.mirror;
        let open = self.with_role(Role::Precision).find(is_auto).filter(|_| self.precision == Precision::F32);
        open.map(|key| key.entry.shown.as_str())
    }

    /// Key of the number of devices or machines, or of a global batch beside micro-batches, where the file leaves the number
    /// of devices open.
    pub fn open_ranks(&self) -> Option<&str> {
        self.open_ranks.as_deref()
    }

    /// Batches prepared ahead by all workers; PyTorch counts per worker.
    pub(crate) fn prefetch_depth(&self) -> Option<u64> {
        let each = self.prefetch?;
        let is_per_worker = self.matched(Role::Prefetch).is_some_and(|key| key.spelling == Spelling::CountPerWorker);
        Some(if is_per_worker { each.saturating_mul(self.workers.unwrap_or(0).max(1)) } else { each })
    }
}

/// Returns true if the file has more of a training than a batch size: a file of another program can have that.
fn is_training(entries: &[ConfigEntry], keys: &MatchedKeys<'_>) -> bool {
    let is_evidence = |key: &&MatchedKey| match key.role {
        Role::Workers | Role::Prefetch | Role::Ranks | Role::RanksOfNode | Role::Nodes => false,
        // `precision: 2` counts digits.
        _ => key.row.words.is_empty() || !matches!(key.meaning(keys.source.text), Meaning::Unknown),
    };
    let settings = keys.all.iter().filter(is_evidence).count() > 1;
    let names = || entries.iter().map(ConfigEntry::name);
    !keys.dialect.is_plain() || settings || names().any(|name| Names::get().is_of_training(name))
}

/// All devices, by one key; or the devices of a machine times the machines. Also the key that leaves their number open.
fn ranks(keys: &mut MatchedKeys<'_>) -> (Option<u64>, Option<String>) {
    let mut open = None;
    let mut read = |role: Role| {
        let key = keys.with_role(role).next().cloned()?;
        let read = devices(&key, keys.source);
        let count = keys.keep(read);
        // Without a value there is one machine.
        if count.is_none() && !(role == Role::Nodes && key.entry.value == Value::Null) {
            open.get_or_insert(key.entry.shown);
        }
        count
    };
    let (devices, all, nodes) = (read(Role::RanksOfNode), read(Role::Ranks), read(Role::Nodes));
    let product =
        (devices.is_some() || nodes.is_some()).then(|| devices.unwrap_or(1).saturating_mul(nodes.unwrap_or(1)));
    (all.or(product), open.filter(|_| all.is_none()))
}

/// Number of devices: a number or a list; `None` for words such as `auto` and for all that there are.
fn devices(key: &MatchedKey, source: Source<'_>) -> Result<Option<u64>, FileError> {
    match &key.entry.value {
        Value::List(devices) => Ok(Some(devices.len().max(1) as u64)),
        Value::Text(text) if text.contains(',') => {
            Ok(Some(text.split(',').filter(|one| !one.trim().is_empty()).count().max(1) as u64))
        }
        Value::Number(_) if key.spelling == Spelling::Devices => Ok(Some(1)),
        Value::Text(_) | Value::Flag(_) => Ok(None),
        Value::Number(digits) if digits == "-1" || digits == "0" => Ok(None),
        _ => key.count(1..=1 << 20, source),
    }
}

fn optimizer(entries: &[ConfigEntry], keys: &mut MatchedKeys<'_>) -> Option<Optimizer> {
    let source = keys.source;
    let read = |key: &MatchedKey| {
        match &key.entry.value {
        _ if key.is_left || matches!(key.meaning(source.text), Meaning::Open) => None,
        // The name of another file.
        Value::Text(text) if text.contains(['/', ':']) || text.is_empty() => None,
        Value::Text(text) => Some(optimizer_in(text).ok_or_else(|| {
            let (shown, all) = (&key.entry.shown, Optimizer::ALL.map(Optimizer::name).join(", "));
            let message = format!(
                "`{shown}`: `{text}` is not modelled; name the closest of {all} with --dim optimizer=NAME, and --leave {shown}"
            );
            source.error(&key.entry.place(), message)
        })),
        _ => None,
    }
    };
    let named = keys.with_role(Role::Optimizer).find_map(read)?;
    let named = keys.keep(named.map(Some))?;
    let has_momentum = entries.iter().any(|entry| {
        let Value::Number(digits) = &entry.value else { return false };
        entry.name() == "momentum" && digits.parse().unwrap_or(0.0) > 0.0
    });
    Some(if named == Optimizer::Sgd && has_momentum { Optimizer::Momentum } else { named })
}
