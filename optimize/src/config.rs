//! The training settings of a config, with its optimizer step.

use std::collections::HashMap;

use gpu_tuned_core::Precision;
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::Optimizer;
use serde::Serialize;

use crate::dialect::{DefaultValue, Dialect, Framework, Key, Role, Spelling, ends};
use crate::document::{ConfigEntry, ConfigText, Value};
use crate::error::{MOST_MISTAKES, OptimizeError};
use crate::matched::{Index, KeyOverride, MatchedKey, MatchedKeys, Meaning, other_file};
use crate::model::{Dimension, use_of_micro_batch};
use crate::names::{Names, optimizer_in};
use crate::vocabulary::has_no_value;

/// Keys that give SGD a momentum.
const MOMENTUM: [&str; 3] = ["momentum", "sgd_momentum", "nesterov"];

const MAX_SAMPLES: u64 = 1 << 40;
const MAX_BATCH: u64 = 1 << 30;

/// The training settings of a config and their keys.
pub struct Config {
    pub(crate) file: ConfigText,
    pub(crate) entries: Vec<ConfigEntry>,
    overrides: Vec<KeyOverride>,
    /// The ecosystem of the file.
    pub dialect: &'static Dialect,
    pub(crate) keys: Vec<MatchedKey>,
    pub(crate) batch: Option<u64>,
    pub(crate) accumulation: Option<u64>,
    /// Samples of an optimizer step over all devices.
    pub(crate) global_batch: Option<u64>,
    /// Devices that train together.
    pub ranks: Option<u64>,
    /// Devices of each machine.
    pub(crate) devices_of_node: Option<u64>,
    /// Key that leaves the number of devices open: its own, or that of a step whose parts depend on it.
    open_ranks: Option<String>,
    /// Loader workers.
    pub workers: Option<u64>,
    /// Batches prepared ahead, in the unit of its key.
    prefetch: Option<u64>,
    pub(crate) precision: Precision,
    /// True for automatic mixed precision, whatever format the weights have.
    pub(crate) is_mixed: bool,
    /// TF32 in products of fp32.
    pub tf32: Option<bool>,
    pub(crate) checkpointing: Option<bool>,
    /// The optimizer, where a key names one.
    pub optimizer: Option<Optimizer>,
    /// Samples of the training set: the smallest of several numbers, as some of them include evaluation. Numbers below the
    /// batch size count something else.
    pub(crate) data_set: Option<u64>,
    /// Effect of the samples of a micro-batch beside the rounding.
    pub(crate) use_of_micro_batch: Option<&'static str>,
    /// True if keys besides the batch identify a training config.
    pub is_training: bool,
    /// True for a hand-written config with keys or values of `PyTorch`.
    of_pytorch: bool,
}

impl Config {
    /// Reads the settings among the entries of a file.
    ///
    /// # Errors
    ///
    /// All mistakes in the values, with their places; a file of another kind.
    pub fn read(entries: &[ConfigEntry], file: &ConfigText, overrides: &[KeyOverride]) -> Result<Self, OptimizeError> {
        let index = Index::new(entries);
        if let Some(error) = other_file(&index, overrides) {
            return Err(error);
        }
        let mut keys = MatchedKeys::new(&index, file, overrides);
        let batch = keys.count(Role::Batch, 1..=MAX_BATCH);
        let (ranks, devices_of_node, open_ranks) = ranks(&mut keys);
        let (precision, is_mixed) = precision(entries, &mut keys);
        let mut config = Self {
            file: file.clone(),
            entries: entries.to_vec(),
            overrides: overrides.to_vec(),
            dialect: keys.dialect,
            batch,
            data_set: data_set(&mut keys, batch.unwrap_or(1)),
            accumulation: count_or_default(Role::Accumulation, entries, &mut keys),
            global_batch: count_or_default(Role::GlobalBatch, entries, &mut keys),
            ranks,
            devices_of_node,
            open_ranks,
            workers: keys.count(Role::Workers, 0..=4096),
            prefetch: keys.count(Role::Prefetch, 0..=1 << 16),
            precision,
            is_mixed,
            tf32: keys.flag(Role::Tf32),
            checkpointing: checkpointing(entries, &mut keys),
            optimizer: optimizer(entries, &mut keys)
                .or_else(|| optimizer_in(keys.dialect.default_of(Role::Optimizer, "", entries)?)),
            use_of_micro_batch: use_of_micro_batch(entries),
            of_pytorch: keys.dialect.is_plain() && entries.iter().any(is_of_pytorch),
            is_training: !overrides.is_empty() || is_training(entries, &keys),
            keys: Vec::new(),
        };
        let source = keys.source;
        let of_evaluations = keys.with_role(Role::EvalBatch);
        let mistakes = of_evaluations.filter_map(|key| key.count(1..=MAX_BATCH, source).err());
        let mut mistakes: Vec<_> = mistakes.take(MOST_MISTAKES).collect();
        let unmodelled = |key: &&MatchedKey| match key.role {
            Role::Method => true,
            Role::Feature => !key.row.words.is_empty(),
            _ => false,
        };
        // A policy by blocks does not read the size of a unit.
        let is_policy = |key: &MatchedKey| matches!(key.meaning(source.text), Meaning::Known("blocks"));
        let wraps_blocks = keys.with_role(Role::Feature).any(is_policy);
        let is_unread = |key: &MatchedKey| wraps_blocks && key.row.dim == "fsdp_units";
        let words = keys.all.iter().filter(|key| unmodelled(key) && !is_unread(key));
        let words = words.filter(|key| matches!(key.meaning(source.text), Meaning::Unknown));
        mistakes.extend(words.take(MOST_MISTAKES).map(|key| key.unknown(source)));
        let features: Vec<_> = keys.with_role(Role::Feature).filter(|key| key.assumed.is_none()).collect();
        let values = features.iter().filter(|key| key.row.words.is_empty()).filter_map(|key| match key.spelling {
            Spelling::Flag => key.flag(source).err(),
            // No program fills in a stage.
            _ if key.entry.value != Value::Null && key.is_open() => Some(key.unknown(source)),
            _ => key.count(0..=3, source).err(),
        });
        mistakes.extend(values.chain(contradictions(&features, source)).take(MOST_MISTAKES));
        keys.mistakes.extend(mistakes);
        if config.is_training {
            keys.mistakes.append(&mut keys.unknown);
        }
        if keys.mistakes.is_empty() {
            config.keys = keys.all;
            let counts_devices = [Role::Ranks, Role::RanksOfNode].iter().any(|role| config.key(*role).is_some());
            let of_machine = config.dialect.default_of(Role::RanksOfNode, "", entries).map(str::to_owned);
            let by_default = || config.step_of_unknown_ranks().or_else(|| config.sharded_over()).or(of_machine);
            config.open_ranks = config.open_ranks.clone().or(by_default().filter(|_| !counts_devices));
            Ok(config)
        } else if config.is_training && (!config.dialect.is_plain() || keys.has_step) {
            Err(file.mistakes(keys.mistakes))
        } else {
            Err(OptimizeError::NotTraining { found: String::new() })
        }
    }

    /// Key of a global batch that devices share in micro-batches, where no key has their number.
    fn step_of_unknown_ranks(&self) -> Option<String> {
        let micro = self.key(Role::Batch)?;
        self.key(Role::GlobalBatch).or(self.global_batch.map(|_| micro)).map(str::to_owned)
    }

    /// Key that shards or distributes the training, where no key has the number of devices.
    fn sharded_over(&self) -> Option<String> {
        let is_on = |key: &&MatchedKey| match key.meaning(&self.file.text) {
            Meaning::Known(word) => !["0", "none"].contains(&word),
            _ => key.entry.value.count().is_some_and(|stage| stage > 0),
        };
        let mut keys =
            self.with_role(Role::Feature).filter(|key| ["zero_stage", "distributed"].contains(&key.row.dim.as_str()));
        keys.find(is_on).map(|key| key.entry.shown.clone())
    }

    /// Reads an edited text with the same keys.
    pub(crate) fn again(&self, file: &ConfigText, entries: &[ConfigEntry]) -> Result<Self, OptimizeError> {
        let config = Self::read(entries, file, &self.overrides)?;
        // The user names the workload of a file with a batch size only.
        Ok(Self { is_training: self.is_training, ..config })
    }

    pub(crate) fn with_role(&self, role: Role) -> impl Iterator<Item = &MatchedKey> {
        self.keys.iter().filter(move |key| key.role == role)
    }

    /// The value of a feature: the strongest of its keys', else the default of the dialect.
    pub(crate) fn feature(&self, name: &str) -> Option<String> {
        let of_keys = self.with_role(Role::Feature).filter(|key| key.row.dim == name).filter_map(|key| {
            match key.meaning(&self.file.text) {
                Meaning::Known(word) => Some(word.to_owned()),
                _ if key.assumed.is_some() => key.assumed.clone(),
                _ if key.spelling == Spelling::Flag => {
                    key.flag(self.file.source()).ok().flatten().map(|on| on.to_string())
                }
                // `stage: 2.0`
                _ => key.entry.value.count().map(|count| count.to_string()).filter(|_| key.row.words.is_empty()),
            }
        });
        of_keys.max().or_else(|| Some(self.dialect.default_of(Role::Feature, name, &self.entries)?.to_owned()))
    }

    /// The kind of sharding. FSDP that wraps no blocks gathers all weights, as one unit.
    pub(crate) fn sharding(&self) -> Option<String> {
        let is_one_unit = self.feature("fsdp_units").as_deref() == Some("one");
        let kind = self.feature("zero_stage")?;
        Some(match kind.as_str() {
            "fsdp" | "fsdp-half" if is_one_unit => "fsdp2".to_owned(),
            "hsdp" if is_one_unit => "hsdp2".to_owned(),
            _ => kind,
        })
    }

    pub(crate) fn has_feature(&self, name: &str) -> bool {
        self.feature(name).as_deref() == Some("true")
    }

    /// Samples of a batch of evaluation, by default those of a micro-batch; 0 where the file turns evaluation off.
    pub(crate) fn eval_batch(&self, micro_batch: u64) -> u64 {
        let Some(default) = self.dialect.default_of(Role::EvalBatch, "", &self.entries) else { return 0 };
        let own = self.matched(Role::EvalBatch).and_then(|key| key.count(1..=MAX_BATCH, self.file.source()).ok()?);
        own.or_else(|| default.parse().ok()).unwrap_or(micro_batch)
    }

    /// Returns true if the weights have the format of the saved model.
    pub(crate) fn loads_saved(&self) -> bool {
        self.feature("half_weights").as_deref() == Some("saved")
            && self.with_role(Role::Weights).all(MatchedKey::is_open)
    }

    /// Returns true if a key loads the weights in fp32.
    pub(crate) fn loads_f32(&self) -> bool {
        self.with_role(Role::Weights).any(|key| matches!(key.meaning(&self.file.text), Meaning::Known("f32")))
    }

    /// Returns true if a key sets the format of the weights, or packs them.
    fn sets_weights(&self) -> bool {
        let packs = |key: &MatchedKey| {
            key.row.dim == "frozen_weights" && matches!(key.meaning(&self.file.text), Meaning::Known(_))
        };
        self.with_role(Role::Dim).any(packs) || !self.with_role(Role::Weights).all(MatchedKey::is_open)
    }

    /// Returns true if the inputs of checkpointed layers are in the host's memory.
    pub(crate) fn offloads(&self) -> bool {
        let is_word = |key: &MatchedKey| matches!(key.meaning(&self.file.text), Meaning::Known("offload"));
        self.has_feature("offload") || self.with_role(Role::Checkpointing).any(is_word)
    }

    /// The framework that runs the training: that of the dialect. A hand-written config with keys or values of `PyTorch` is
    /// one of `PyTorch`.
    pub fn framework(&self) -> Framework {
        if self.of_pytorch { Framework::Pytorch } else { self.dialect.framework }
    }

    /// Values without a key, by the framework's defaults: the setting, its value, and the address of the documentation.
    pub fn defaults(&self, ranks: u64) -> impl Iterator<Item = (&str, &str, &str)> {
        let is_used = move |row: &&DefaultValue| match row.role {
            _ if !row.beside.is_met(&self.entries) || row.value == "?" || row.dim == "prepared" => false,
            _ if ranks == 1 && ["zero_stage", "no_sync"].contains(&row.dim.as_str()) => false,
            // Hand-written configs of Burn have none.
            Role::Feature if self.framework() != Framework::Pytorch => false,
            // Formats of weights as they are loaded.
            _ if ["false", "saved"].contains(&row.value.as_str())
                && row.dim == "half_weights"
                && self.sets_weights() =>
            {
                false
            }
            Role::Feature => self.with_role(Role::Feature).all(|key| key.row.dim != row.dim || key.is_open()),
            Role::GlobalBatch => self.with_role(row.role).next().is_none(),
            Role::Checkpointing | Role::Optimizer | Role::Precision | Role::Accumulation | Role::EvalBatch => {
                self.with_role(row.role).all(MatchedKey::is_open)
            }
            _ => false,
        };
        self.dialect.defaults.iter().filter(is_used).map(|row| {
            let name = match (row.role, row.dim.as_str()) {
                (Role::Checkpointing, _) => "checkpointing",
                (Role::Optimizer, _) => "optimizer",
                (Role::Precision, _) => "precision",
                (Role::EvalBatch, _) => "batch of evaluation",
                (Role::Accumulation, _) => "micro-batches of a step",
                (Role::GlobalBatch, _) => "samples of a step",
                (_, "flash_attention") => "flash attention",
                (_, "half_weights") => "weights in 16 bits",
                (_, "fused_cross_entropy") => "computation of the loss",
                (_, "zero_stage") => "sharding",
                (_, "fsdp_units") => "units of FSDP",
                (_, "gradient_buffers") => "buffers of gradients",
                (_, "no_sync") => "gradients kept whole between micro-batches",
                (_, other) => other,
            };
            (name, row.value.as_str(), row.source.as_str())
        })
    }

    /// The error of a file without a part of the step for which the framework has no fixed default, or none that a plan keeps.
    fn chosen_by_the_program(&self, role: Role) -> Option<OptimizeError> {
        self.dialect.default_of(role, "", &self.entries).filter(|value| *value == "?" && self.key(role).is_none())?;
        let what = match role {
            Role::Batch => "the micro-batch",
            Role::GlobalBatch => "the samples of a step",
            _ => "the micro-batches of a step",
        };
        let (name, key) = (&self.dialect.name, self.dialect.usual(role, 1));
        Some(self.mistake(Role::Batch, format!("{name} chooses {what} without `{key}`: write it into the file")))
    }

    /// Returns true if the program divides the global batch into micro-batches. A global batch that the framework does not read, or
    /// that repeats other keys, divides nothing.
    pub(crate) fn divides_global_batch(&self) -> bool {
        let is_own = |key: &MatchedKey| {
            let mut own = self.dialect.rows(Role::GlobalBatch).filter(|row| !row.mirror);
            self.dialect.adds_on_request || own.any(|row| core::ptr::eq(row, key.row))
        };
        self.global_batch.is_some() && self.matched(Role::GlobalBatch).is_none_or(is_own)
    }

    /// Micro-batches of a step, where the framework has a default for its samples.
    fn default_steps(&self, part: u64) -> Option<u64> {
        let default = self.dialect.default_of(Role::Accumulation, "", &self.entries)?;
        Some(default.strip_suffix(" samples")?.parse::<u64>().ok()?.div_ceil(part.max(1)))
    }

    /// Keys with a value that neither the settings nor these dimensions use, as the file spells them.
    pub fn unused(&self, dims: &[Dimension]) -> Vec<&str> {
        let of_dims: Vec<_> = dims.iter().filter_map(|dim| dim.origin.keys()).flatten().collect();
        let conditions = self.dialect.defaults.iter().flat_map(|row| row.beside.iter());
        let conditions = conditions.map(|it| it.trim_start_matches('!').split('=').next().unwrap_or(it));
        let conditions: Vec<_> = conditions.collect();
        let decides = |entry: &ConfigEntry| {
            MOMENTUM.contains(&entry.name())
                || Names::get().keys.multiple.has(entry.name())
                || conditions.iter().any(|names| ends(&entry.path, names))
                || use_of_micro_batch(std::slice::from_ref(entry)).is_some()
        };
        let is_unused = |entry: &&ConfigEntry| {
            let has_value = !matches!(entry.value, Value::Table(_) | Value::Null);
            let is_used = of_dims.contains(&entry.shown.as_str())
                || decides(entry)
                || self.keys.iter().any(|key| key.entry.path == entry.path && !key.is_left);
            has_value && !is_used
        };
        let mut unused: Vec<_> = self.entries.iter().filter(is_unused).map(|entry| entry.shown.as_str()).collect();
        unused.dedup();
        unused
    }

    /// Returns true if the file leaves the micro-batch to the program.
    pub(crate) fn leaves_micro_batch(&self) -> bool {
        self.matched(Role::Batch).is_some_and(MatchedKey::is_open) && self.accumulation.is_none()
    }

    pub(crate) fn mistake(&self, role: Role, message: String) -> OptimizeError {
        let place = self.matched(role).map_or(0..0, |key| key.entry.key_span.clone());
        self.file.mistakes(vec![self.file.source().error(&place, message)])
    }

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

    pub(crate) fn leaves(&self, role: Role) -> bool {
        self.with_role(role).any(|key| key.is_left)
    }

    /// Returns true if the file can express a setting: with a key, or one that programs of the dialect read.
    pub(crate) fn can_set(&self, role: Role, add_keys: bool) -> bool {
        let is_added = || self.dialect.addition(role).is_some() && (add_keys || !self.dialect.adds_on_request);
        if self.key(role).is_some() { !self.leaves(role) } else { is_added() }
    }

    /// Names and files of the model, each with its key for messages; first those that replace others.
    pub(crate) fn named_models(&self) -> impl Iterator<Item = (String, String)> {
        let of_mirror = |mirror: bool| self.with_role(Role::ModelFile).filter(move |key| key.row.mirror == mirror);
        let texts = of_mirror(false).chain(of_mirror(true)).filter(|key| matches!(key.entry.value, Value::Text(_)));
        let named = |key: &MatchedKey| (key.entry.value.bare().unwrap_or_default(), key.entry.shown.clone());
        texts.map(named).map(|(text, key)| (text.clone(), format!("`{key} = {text}`")))
    }

    /// The key and value that name the model's file.
    pub fn model_file(&self) -> Option<String> {
        self.named_models().next().map(|(_, by)| by)
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
    let is_of_training = |entry: &ConfigEntry| Names::get().training.has(entry.name());
    !keys.dialect.is_plain() || settings || entries.iter().any(is_of_training)
}

/// Returns true for a key or value of `PyTorch`, such as `pin_memory` or `torch.optim.AdamW`.
fn is_of_pytorch(entry: &ConfigEntry) -> bool {
    let is_class = || matches!(&entry.value, Value::Text(text) if text.starts_with("torch"));
    Names::get().of_pytorch.has(entry.name()) || is_class()
}

/// All devices, by one key; or the devices of a machine times the machines. Also the key that leaves their number open.
fn ranks(keys: &mut MatchedKeys<'_>) -> (Option<u64>, Option<u64>, Option<String>) {
    let mut open = None;
    let mut read = |role: Role| {
        let all: Vec<_> = keys.with_role(role).cloned().collect();
        let key = all.first()?.clone();
        if let Some(other) =
            all.iter().find(|other| !other.is_open() && other.entry.value != key.entry.value && !key.is_open())
        {
            let (one, two) = (&key.entry.shown, &other.entry.shown);
            let message = format!("`{one}` and `{two}` both give the number of devices: keep one");
            keys.mistakes.push(keys.source.error(&other.entry.key_span, message));
        }
        let read = devices(&key, keys.dialect.is_plain(), keys.source);
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
    let own = |role: Role| keys.with_role(role).next().map(|key| key.entry.clone());
    let disagree = all
        .zip(product)
        .is_some_and(|(all, product)| if nodes.is_some() { all != product } else { all % product != 0 });
    if let (true, Some(entry), Some(part)) = (disagree, own(Role::Ranks), own(Role::RanksOfNode).or(own(Role::Nodes))) {
        let message = format!("`{}` contradicts `{}`: keep one", entry.shown, part.shown);
        keys.mistakes.push(keys.source.error(&entry.key_span, message));
    }
    (all.or(product), devices, open.filter(|_| all.is_none()))
}

/// Number of devices: a number or a list; `None` for words such as `auto` and for all that there are.
fn devices(key: &MatchedKey, is_plain: bool, source: Source<'_>) -> Result<Option<u64>, FileError> {
    match &key.entry.value {
        Value::List(devices) => Ok(Some(devices.len().max(1) as u64)),
        Value::Text(text) if text.contains(',') => {
            Ok(Some(text.split(',').filter(|one| !one.trim().is_empty()).count().max(1) as u64))
        }
        // Lightning reads `devices: "4"` as a number. A hand-written `gpus: "0"` can be the number of a device.
        Value::Text(text) if !is_plain || key.role != Role::RanksOfNode => {
            Ok(text.trim().parse().ok().filter(|count| *count > 0))
        }
        Value::Text(_) | Value::Flag(_) => Ok(None),
        Value::Number(digits) if digits == "-1" || digits == "0" => Ok(None),
        _ => key.count(1..=1 << 20, source),
    }
}

/// Mistakes at keys of one row with different meanings, such as two implementations of attention.
fn contradictions(features: &[&MatchedKey], source: Source<'_>) -> Vec<FileError> {
    let mut first: HashMap<*const Key, (&MatchedKey, &str)> = HashMap::new();
    let words = features.iter().filter(|key| key.spelling == Spelling::Words);
    words
        .filter_map(|key| {
            let Meaning::Known(word) = key.meaning(source.text) else { return None };
            let (other, before) = *first.entry(core::ptr::from_ref(key.row)).or_insert((*key, word));
            let message = format!("`{}` and `{}` contradict each other: keep one", other.entry.shown, key.entry.shown);
            (before != word).then(|| source.error(&key.entry.key_span, message))
        })
        .collect()
}

fn optimizer(entries: &[ConfigEntry], keys: &mut MatchedKeys<'_>) -> Option<Optimizer> {
    let source = keys.source;
    let read = |key: &MatchedKey| {
        match &key.entry.value {
            _ if matches!(key.meaning(source.text), Meaning::Open) => None,
            // A key that only the config of one optimizer has.
            _ if let Meaning::Known(word) = key.meaning(source.text) => optimizer_in(word).map(Ok),
            // The name of another file.
            Value::Text(text) if text.contains(['/', ':']) || text.is_empty() => None,
            Value::Text(text) => Some(optimizer_in(key.assumed.as_ref().unwrap_or(text)).ok_or_else(|| {
                let (shown, all) = (&key.entry.shown, Optimizer::ALL.map(Optimizer::name).join(", "));
                let message =
                    format!("`{shown}`: `{text}` is not modelled; name the closest of {all}: --assume {shown}=NAME");
                source.error(&key.entry.place(), message)
            })),
            _ => None,
        }
    };
    let all: Vec<_> = keys.with_role(Role::Optimizer).filter_map(|key| Some((key.entry.clone(), read(key)?))).collect();
    let mut named = None;
    for (entry, one) in all {
        let one = keys.keep(one.map(Some))?;
        // Adam and AdamW have one state.
        let state = |it: Optimizer| if it == Optimizer::Adam { Optimizer::AdamW } else { it };
        let shown = &entry.shown;
        if named.is_some_and(|first| state(first) != state(one)) {
            let message =
                format!("`{shown}` names another optimizer than a key before it: keep one, or --assume {shown}=NAME");
            keys.mistakes.push(source.error(&entry.place(), message));
        }
        named = named.or(Some(one));
    }
    let named = named?;
    let has_momentum =
        entries.iter().any(|entry| MOMENTUM.contains(&entry.name()) && !has_no_value(&entry.value, false));
    Some(if named == Optimizer::Sgd && has_momentum { Optimizer::Momentum } else { named })
}

/// Activation checkpointing by its key, else by the dialect's default.
fn checkpointing(entries: &[ConfigEntry], keys: &mut MatchedKeys<'_>) -> Option<bool> {
    let default = keys.dialect.default_of(Role::Checkpointing, "", entries).map(|word| word == "true");
    let has_key = keys.with_role(Role::Checkpointing).next().is_some();
    keys.flag(Role::Checkpointing).or(default.filter(|_| !has_key))
}

/// The precision that the keys request together, fp32 without any; and true for automatic mixed precision over any weights.
fn precision(entries: &[ConfigEntry], keys: &mut MatchedKeys<'_>) -> (Precision, bool) {
    let source = keys.source;
    let all: Vec<MatchedKey> = keys.all.iter().filter(|key| key.role.is_of_precision()).cloned().collect();
    let mut requested: Vec<(Precision, &MatchedKey)> = Vec::new();
    for key in &all {
        let flag = |precision| key.flag(source).map(|on| on.filter(|on| *on).map(|_| precision));
        let read = match key.spelling {
            Spelling::FlagFor(precision) => flag(precision),
            Spelling::AmpSwitch => flag(Precision::MixedF16),
            _ => match key.meaning(source.text) {
                Meaning::Known(word) => Ok(word.parse().ok()),
                Meaning::Open => Ok(None),
                Meaning::Unknown => Err(key.unknown(source)),
            },
        };
        requested.extend(keys.keep(read).map(|precision| (precision, key)));
    }
    // `mixed_precision: {enabled: false, dtype: bf16}`
    let is_off = |key: &&MatchedKey| key.entry.name() == "enabled" && matches!(key.flag(source), Ok(Some(false)));
    let off: Vec<&[String]> =
        all.iter().filter(is_off).filter_map(|key| Some(key.entry.path.split_last()?.1)).collect();
    let is_in_one = |key: &MatchedKey| off.iter().any(|table| !table.is_empty() && key.entry.path.starts_with(table));
    requested.retain(|(_, key)| !is_in_one(key));
    let is_off = |key: &&MatchedKey| key.spelling == Spelling::AmpSwitch && matches!(key.flag(source), Ok(Some(false)));
    let is_mixed = |(precision, key): &&(Precision, &MatchedKey)| {
        key.spelling == Spelling::Words && key.role == Role::Precision && precision.is_mixed()
    };
    if let (Some(switch), Some((_, key))) = (all.iter().find(is_off), requested.iter().find(is_mixed)) {
        let message = format!("`{}` turns off what `{}` sets: keep one", switch.entry.shown, key.entry.shown);
        keys.mistakes.push(source.error(&switch.entry.key_span, message));
    }
    let default = keys.dialect.default_of(Role::Precision, "", entries);
    let default = default.map(|name| name.parse::<Precision>().expect("BUG: the tables have precisions"));
    let turns_off = |key: &MatchedKey, precision: &Precision| {
        key.spelling == Spelling::FlagFor(*precision) && matches!(key.flag(source), Ok(Some(false)))
    };
    let default = default.filter(|default| !all.iter().any(|key| turns_off(key, default)));
    let is_open = requested.iter().all(|(_, key)| key.role == Role::Weights);
    let is_mixed = requested.iter().any(|(it, _)| it.is_mixed()) || is_open && default.is_some_and(Precision::is_mixed);
    // Weights in fp32 are those of mixed precision, too.
    let is_default = is_open && requested.iter().all(|(it, _)| *it == Precision::F32);
    if let Some(default) = default.filter(|_| is_default) {
        return (default, is_mixed);
    }
    let format = requested.iter().find(|(_, key)| key.role == Role::AmpFormat).map(|(format, _)| *format);
    let has_switch = all.iter().any(|key| key.spelling == Spelling::AmpSwitch);
    for (precision, key) in &mut requested {
        if key.spelling == Spelling::AmpSwitch {
            *precision = format.filter(|format| format.is_mixed()).unwrap_or(*precision);
        }
    }
    // The format of automatic mixed precision does not turn that on.
    requested.retain(|(precision, key)| *precision != Precision::F32 && !(key.role == Role::AmpFormat && has_switch));
    let weights = requested.iter().find(|(_, key)| key.role == Role::Weights).map(|(precision, _)| *precision);
    if weights == Some(Precision::Bf16Params) {
        requested
            .iter_mut()
            .filter(|(it, _)| *it == Precision::MixedBf16)
            .for_each(|(it, _)| *it = Precision::Bf16Params);
    }
    let Some((first, by)) = requested.first() else { return (Precision::F32, is_mixed) };
    if let Some((other, second)) = requested.iter().find(|(other, _)| other != first) {
        let (one, two) = (&by.entry.shown, &second.entry.shown);
        let message = format!("`{one}` asks for {first} and `{two}` for {other}: keep one");
        keys.mistakes.push(source.error(&second.entry.key_span, message));
    }
    (*first, is_mixed)
}

/// The count of a role; without a key the dialect's default.
fn count_or_default(role: Role, entries: &[ConfigEntry], keys: &mut MatchedKeys<'_>) -> Option<u64> {
    let default = keys.dialect.default_of(role, "", entries).filter(|_| keys.with_role(role).next().is_none());
    keys.count(role, 1..=MAX_BATCH).or_else(|| default?.parse().ok())
}

fn data_set(keys: &mut MatchedKeys<'_>, batch: u64) -> Option<u64> {
    let (source, all): (_, Vec<_>) = (keys.source, keys.with_role(Role::Samples).cloned().collect());
    let read = all.into_iter().filter_map(|key| keys.keep(key.count(2..=MAX_SAMPLES, source)));
    read.filter(|samples| *samples >= batch).min()
}

/// Composition of an optimizer step in the config, and the planned size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Samples of a micro-batch.
    #[serde(rename = "batch_size")]
    pub batch: u64,
    /// Micro-batches of a step.
    #[serde(rename = "gradient_accumulation")]
    pub accumulation: u64,
    /// Devices that train together.
    #[serde(rename = "world_size")]
    pub ranks: u64,
    /// Samples of a step over all devices: the product of the three, or the user's choice.
    #[serde(rename = "global_batch")]
    pub global: u64,
}

impl Step {
    /// The step of a config; a given global batch and number of ranks override the config.
    ///
    /// # Errors
    ///
    /// A config without a batch size, and numbers that contradict each other.
    pub fn new(config: &Config, global_batch: Option<u64>, world_size: Option<u64>) -> Result<Self, OptimizeError> {
        let ranks = world_size.or(config.ranks).unwrap_or(1).max(1);
        let of_rank = |role: Role, value: Option<u64>| match value {
            Some(shared) if is_over_ranks(config, role) && !shared.is_multiple_of(ranks) => {
                Err(not_shared(config, role, shared, ranks))
            }
            Some(shared) if is_over_ranks(config, role) => Ok(Some(shared / ranks)),
            value => Ok(value),
        };
        let (batch, steps) = (of_rank(Role::Batch, config.batch)?, of_rank(Role::Accumulation, config.accumulation)?);
        let global = config.global_batch;
        // A key that leaves a factor of the step to the program.
        let open = |role: Role| config.matched(role).is_some_and(MatchedKey::is_open);
        if let Some(missing) =
            [Role::Batch, Role::GlobalBatch].into_iter().find_map(|it| config.chosen_by_the_program(it))
        {
            return Err(missing);
        }
        let batch = match (batch, global.or(global_batch)) {
            (Some(batch), _) => batch,
            // The other keys divide the global batch.
            (None, Some(global)) if global_batch.is_some() || config.divides_global_batch() => {
                (global / ranks / steps.unwrap_or(1)).max(1)
            }
            (None, _) => {
                return Err(match [Role::GlobalBatch, Role::Batch].into_iter().find(|role| open(*role)) {
                    Some(role) => left_open(config, role),
                    None if !config.is_training => OptimizeError::NotTraining { found: String::new() },
                    None => no_batch(config),
                });
            }
        };
        let implied = implied_accumulation(config, global.or(global_batch), batch, ranks);
        let steps = match (steps, implied) {
            (Some(steps), _) | (None, Some(steps)) => steps,
            (None, None) if open(Role::Accumulation) && global.or(global_batch).is_none() => {
                return Err(left_open(config, Role::Accumulation));
            }
            (None, None)
                if global_batch.is_none()
                    && let Some(missing) = config.chosen_by_the_program(Role::Accumulation) =>
            {
                return Err(missing);
            }
            (None, None) => config.default_steps(batch * ranks).filter(|_| global_batch.is_none()).unwrap_or(1),
        };
        if !config.is_training {
            return Err(OptimizeError::NotTraining { found: String::new() });
        }
        let product = batch.checked_mul(steps).and_then(|samples| samples.checked_mul(ranks));
        let product = product.filter(|product| *product <= MAX_BATCH);
        let product = product.ok_or(OptimizeError::TooLarge { batch, accumulation: steps, ranks })?;
        let configured = global.filter(|configured| global_batch.is_none() && *configured != product);
        if let Some(configured) = configured {
            let micro = config.key(Role::Batch).unwrap_or("the batch");
            let found = format!("`{micro}` {batch} x {steps} x {ranks} rank(s) are {product} samples");
            let (is, remedy) = match config.key(Role::GlobalBatch) {
                Some(key) => {
                    (format!("`{key}` is"), "correct the config, or choose with --global-batch or --world-size")
                }
                None => (format!("{} has a default of", config.dialect.name), "write the global batch into the file"),
            };
            return Err(config.mistake(Role::GlobalBatch, format!("{found}, but {is} {configured}: {remedy}")));
        }
        let global = global_batch.unwrap_or(product);
        if let (Some(default), None) = (config.global_batch, config.key(Role::GlobalBatch))
            && global != default
        {
            let key = config.dialect.usual(Role::GlobalBatch, 1);
            let message =
                format!("a step has {default} samples without `{key}`: write `{key}: {global}` into the file");
            return Err(config.mistake(Role::Batch, message));
        }
        if !global.is_multiple_of(ranks) {
            return Err(OptimizeError::Ranks { global, ranks });
        }
        Ok(Self { batch, accumulation: steps, ranks, global })
    }

    /// Samples of a step on one device.
    pub const fn samples_per_rank(&self) -> u64 {
        self.global / self.ranks
    }

    /// Samples of a step in the config as it is.
    pub const fn configured(&self) -> u64 {
        self.batch * self.accumulation * self.ranks
    }
}

/// The error of a count that the devices cannot share.
fn not_shared(config: &Config, role: Role, shared: u64, ranks: u64) -> OptimizeError {
    let key = config.key(role).or(config.dialect.addition(role)).unwrap_or("the batch");
    let default = if config.key(role).is_none() { " by default" } else { "" };
    let remedy = format!("set a multiple of {ranks}, or another --world-size");
    config.mistake(role, format!("{ranks} devices cannot share `{key}`, which is {shared}{default}: {remedy}"))
}

fn left_open(config: &Config, role: Role) -> OptimizeError {
    let key = config.key(role).unwrap_or_default();
    let remedy = "give the samples of an optimizer step over all devices: --global-batch";
    config.mistake(role, format!("`{key}` is left to the program: {remedy}"))
}

fn no_batch(config: &Config) -> OptimizeError {
    let dialect = config.dialect;
    if let Some(key) = config.key(Role::Unfixed) {
        let remedy = "give a batch of a fixed number of samples, with --at batch_size=KEY if its key is not known";
        return config.mistake(Role::Unfixed, format!("`{key}` counts the tokens or seconds of a batch: {remedy}"));
    }
    let plain = Dialect::plain().usual(Role::Batch, 3);
    let usual = [dialect.usual(Role::Batch, 3), dialect.usual(Role::GlobalBatch, 3), plain];
    OptimizeError::NoBatch {
        dialect: dialect.name.clone(),
        usual: usual.into_iter().find(|names| !names.is_empty()).unwrap_or_default(),
        documentation: dialect.documentation.clone(),
    }
}

/// Returns true if the devices share the count of a role.
pub(crate) fn is_over_ranks(config: &Config, role: Role) -> bool {
    let is_split = || role == Role::Batch && config.has_feature("split_batches");
    let added = || config.dialect.rows(role).find(|row| row.add.is_some()).map(|row| row.spelling);
    let spelling = config.matched(role).map(|key| key.spelling).or_else(added);
    is_split() || spelling == Some(Spelling::CountOverRanks)
}

/// Micro-batches of a step where keys set the global batch and the micro-batch, and none the accumulation.
pub(crate) fn implied_accumulation(config: &Config, global: Option<u64>, batch: u64, ranks: u64) -> Option<u64> {
    let is_open = config.matched(Role::Accumulation).is_none_or(MatchedKey::is_open) && config.batch.is_some();
    let is_divided = || match config.global_batch {
        Some(_) => config.divides_global_batch(),
        None => config.key(Role::Accumulation).is_some(),
    };
    let global = global.filter(|_| is_open && is_divided())?;
    let part = batch.checked_mul(ranks)?;
    // Hand-written programs with one micro-batch need not have a loop of several.
    let is_whole = global == part && config.dialect.adds_on_request;
    (global >= part && !is_whole && global.is_multiple_of(part)).then(|| global / part)
}
