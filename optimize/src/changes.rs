//! Changes that a plan makes to a config: new values in place of old ones, keys that the file lacks, and effects elsewhere.

use std::collections::{BTreeMap, HashSet};

use gpu_tuned_core::{Precision, Provenance, Setting};
use serde::Serialize;

use crate::config::{Config, implied_accumulation, is_over_ranks};
use crate::dialect::{Key, Role, Spelling, ends};
use crate::document::{ConfigEntry, Sharing, Value};
use crate::edit::{Edit, apply, insertion, like, spelled};
use crate::matched::MatchedKey;
use crate::task::Decision;

/// A setting in the file and in the plan.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// Name of the setting.
    pub setting: &'static str,
    /// Path of the key; for a key that the file lacks, its proposed name.
    pub key: String,
    /// Value in the file.
    pub before: Option<String>,
    /// Planned value in the spelling of the file.
    pub after: String,
    /// Reason for the value.
    pub why: String,
    /// Provenance of the reason.
    pub provenance: Provenance,
    /// Effect on the file.
    pub state: ChangeState,
}

/// Effect of a plan on a setting in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeState {
    /// The value stays.
    Same,
    /// The value changes.
    Changed,
    /// A key is added.
    Added,
    /// The file lacks the key, and the user has to add it: its program may not read one, or the table for it is missing.
    ByHand,
    /// The file lacks the key; other keys imply the value.
    Implied,
}

impl ChangeState {
    /// Returns true if the text of the file changes.
    pub(crate) const fn is_edit(self) -> bool {
        matches!(self, Self::Changed | Self::Added)
    }
}

pub(crate) struct Changes {
    pub all: Vec<Change>,
    pub text: String,
    /// A key that changes, of a table with aliases.
    pub shared: Option<String>,
    /// Effects on other parts of the file.
    pub effects: Vec<String>,
}

type Reason = (String, Provenance);

struct Editor<'a> {
    config: &'a Config,
    decision: &'a Decision,
    /// True if the program reads every key that is added.
    add_keys: bool,
    all: Vec<Change>,
    edits: Vec<Edit>,
    /// Entries beside which keys are added, with the keys and their values.
    added: Vec<(&'a ConfigEntry, Vec<(String, String)>)>,
    shared: Option<String>,
    /// Keys of tables that are merged into one other, by its place.
    merged: BTreeMap<usize, String>,
}

impl Changes {
    /// Edits the config so that it has the settings.
    pub(crate) fn new(config: &Config, decision: &Decision, add_keys: bool) -> Self {
        let (all, edits, added, shared, merged) = Default::default();
        let mut editor = Editor { config, decision, add_keys, all, edits, added, shared, merged };
        editor.set_counts();
        editor.set_precision();
        editor.set_others();
        let Editor { all, mut edits, added, shared, merged, .. } = editor;
        let file = &config.file;
        for (neighbour, added) in added {
            edits.extend(insertion(neighbour, &added, file.format, &file.text));
        }
        edits.retain(|edit| file.text.get(edit.span.clone()) != Some(&edit.text));
        let line = |at: usize| file.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        let merge = |(at, key): (usize, String)| {
            format!("the table of `{key}` is merged in line {}, and changes there, too", line(at))
        };
        let effects = merged.into_iter().map(merge).collect();
        Self { all, text: apply(&file.text, edits), shared, effects }
    }
}

impl Editor<'_> {
    /// Sets batch, accumulation, workers, and batches prepared ahead.
    fn set_counts(&mut self) {
        let (config, settings, ranks) = (self.config, &self.decision.settings, self.decision.ranks);
        let times = |role: Role| if is_over_ranks(config, role) { ranks } else { 1 };
        let global = self.decision.global_batch;
        if config.matched(Role::GlobalBatch).is_some() {
            self.set_count(Role::GlobalBatch, None, global);
        }
        self.set_count(Role::Batch, Some(Setting::BatchSize), settings.batch_size * times(Role::Batch));
        let steps = settings.gradient_accumulation;
        self.set_count(Role::Accumulation, Some(Setting::GradientAccumulation), steps * times(Role::Accumulation));
        self.set_count(Role::Workers, Some(Setting::NumWorkers), settings.num_workers);
        if let Some(key) = config.matched(Role::Prefetch) {
            let workers =
                if config.can_set(Role::Workers, self.add_keys) { Some(settings.num_workers) } else { config.workers };
            let depth = match key.spelling {
                Spelling::CountPerWorker => settings.prefetch_depth.div_ceil(workers.unwrap_or(1).max(1)),
                _ => settings.prefetch_depth,
            };
            self.set_count(Role::Prefetch, Some(Setting::PrefetchDepth), depth);
        }
    }

    fn set_count(&mut self, role: Role, setting: Option<Setting>, planned: u64) {
        let config = self.config;
        if config.key(role).is_some() {
            for key in config.with_role(role).filter(|key| !key.row.mirror || !key.is_open()) {
                self.replace(key, &planned.to_string(), setting);
            }
            return;
        }
        let Some(setting) = setting else { return };
        let ranks = self.decision.ranks;
        let batch = config.batch.map(|batch| if is_over_ranks(config, Role::Batch) { batch / ranks } else { batch });
        let implied = || implied_accumulation(config, config.global_batch, batch?, ranks);
        if let Some(before) = implied().filter(|_| role == Role::Accumulation) {
            if [before, planned] == [1; 2] {
                return;
            }
            let (reason, key) = (self.reason(Some(setting)), setting.name().to_owned());
            let values = (Some(before.to_string()), planned.to_string());
            return self.record(Some(setting), key, values, reason, ChangeState::Implied);
        }
        // A key with the default as its value is not added.
        let of_default = config.dialect.default_of(role, "", &config.entries).and_then(|value| value.parse().ok());
        let is_needed = match setting {
            Setting::GradientAccumulation => Some(planned) != of_default.or(Some(1)),
            Setting::NumWorkers => {
                self.decision.loader_stays.is_none() && (config.dialect.is_plain() || self.adds(role))
            }
            _ => false,
        };
        if is_needed {
            self.add(role, setting, planned.to_string());
        }
    }

    fn reason(&self, setting: Option<Setting>) -> Reason {
        let reason = setting.and_then(|setting| self.decision.reasons.iter().find(|reason| reason.setting == setting));
        let global_batch =
            || ("samples of an optimizer step: part of the run's results".to_owned(), Provenance::Declared);
        reason.map_or_else(global_batch, |reason| (reason.why.clone(), reason.provenance))
    }

    /// Records a change; without a setting, of the global batch.
    fn record(
        &mut self,
        setting: Option<Setting>,
        key: String,
        (before, after): (Option<String>, String),
        (why, provenance): Reason,
        state: ChangeState,
    ) {
        let setting = setting.map_or("global_batch", Setting::name);
        self.all.push(Change { setting, key, before, after, why, provenance, state });
    }

    fn replace(&mut self, key: &MatchedKey, word: &str, setting: Option<Setting>) {
        let (entry, text) = (&key.entry, self.config.file.text.as_str());
        let raw = entry.raw(text);
        let is_same = raw == word || entry.value.bare().is_some_and(|bare| bare == word);
        let is_of_loader = matches!(setting, Some(Setting::NumWorkers | Setting::PrefetchDepth));
        let loader_stays = self.decision.loader_stays.filter(|_| is_of_loader);
        let stays = key.is_left || loader_stays.is_some();
        let after = match (is_same || stays, key.is_open()) {
            (true, _) => raw.to_owned(),
            // `auto` in quotes becomes a number without.
            (false, true) => spelled(&Value::Null, "", word, self.config.file.format),
            (false, false) => spelled(&entry.value, raw, word, self.config.file.format),
        };
        let left = Some("left as it is").filter(|_| key.is_left).or(loader_stays);
        let reason = left.map_or_else(|| self.reason(setting), |why| (why.to_owned(), Provenance::Declared));
        let before = if raw.is_empty() { "null".to_owned() } else { raw.to_owned() };
        let state = if after == raw { ChangeState::Same } else { ChangeState::Changed };
        self.record(setting, entry.shown.clone(), (Some(before), after.clone()), reason, state);
        if after == raw {
            return;
        }
        self.change_within(entry);
        // Other settings that refer to the value keep the old one, unless they have an edit of their own.
        let edited: HashSet<_> = self.edits.iter().map(|edit| edit.span.clone()).collect();
        let kept = entry.aliases.iter().filter(|alias| !edited.contains(*alias));
        self.edits.extend(kept.map(|alias| Edit { span: alias.clone(), text: entry.with_tag(text) }));
        self.edits.retain(|edit| edit.span != entry.span || edit.span.is_empty());
        self.edits.push(if entry.span.is_empty() {
            // `batch_size:` without a value.
            let end = entry.key_span.end;
            let colon = text[end..].find(':').map_or(end, |at| end + at + 1);
            Edit { span: colon..colon, text: format!(" {after}") }
        } else {
            Edit { span: entry.span.clone(), text: after }
        });
    }

    /// Records that the table of an entry changes.
    fn change_within(&mut self, entry: &ConfigEntry) {
        match entry.sharing {
            Sharing::None => {}
            Sharing::Once(at) => self.merged.extend([(at, entry.shown.clone())]),
            Sharing::Shared => self.shared = Some(entry.shown.clone()),
        }
    }

    /// Returns true if a key that the file lacks is added.
    fn adds(&self, role: Role) -> bool {
        self.config.key(role).is_none() && self.config.can_set(role, self.add_keys)
    }

    /// Adds a key for a setting where the program reads it; else leaves that to the user.
    fn add(&mut self, role: Role, setting: Setting, after: String) {
        let dialect = self.config.dialect;
        let path = dialect.addition(role).unwrap_or(setting.name());
        // A dialect without such a key has no key to add by hand.
        if dialect.addition(role).is_some() || dialect.is_plain() {
            self.add_key(path, setting, after, self.adds(role));
        }
    }

    /// Adds a key at the end of a path: in the last table of the path, or beside the batch.
    fn add_key(&mut self, path: &str, setting: Setting, after: String, is_read: bool) {
        let reason = self.reason(Some(setting));
        let batch = self.config.matched(Role::Batch).or(self.config.matched(Role::GlobalBatch));
        let beside = |entry: &&ConfigEntry| batch.is_some_and(|batch| batch.entry.shown == entry.shown);
        let is_short = |entry: &&ConfigEntry| {
            entry.value.is_scalar() && !entry.span.is_empty() && !entry.raw(&self.config.file.text).contains('\n')
        };
        let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
        let in_table = |entry: &&ConfigEntry| entry.tables().next() == Some(table) && is_short(entry);
        let is_neighbour = |entry: &&ConfigEntry| if table.is_empty() { beside(entry) } else { in_table(entry) };
        let neighbour = self.config.entries.iter().find(is_neighbour).filter(|_| is_read);
        let sibling = neighbour.or_else(|| self.config.entries.iter().find(beside)).map(|entry| entry.key.as_str());
        let name = sibling.map_or_else(|| name.to_owned(), |sibling| like(name, sibling));
        let tables = neighbour.and_then(|entry| entry.shown.strip_suffix(entry.key.as_str()));
        let key =
            format!("{}{name}", tables.unwrap_or(&path[..path.len() - path.rsplit('.').next().map_or(0, str::len)]));
        if let Some(neighbour) = neighbour {
            self.change_within(neighbour);
            let new = (name, after.clone());
            match self.added.iter_mut().find(|(entry, _)| core::ptr::eq(*entry, neighbour)) {
                Some((_, added)) => added.push(new),
                None => self.added.push((neighbour, vec![new])),
            }
        }
        let state = if neighbour.is_some() { ChangeState::Added } else { ChangeState::ByHand };
        self.record(Some(setting), key, (None, after), reason, state);
    }

    fn set_precision(&mut self) {
        let (config, wanted) = (self.config, self.decision.settings.precision);
        let all = || config.keys.iter().filter(|key| key.role.is_of_precision());
        // The format of the weights turns on no mixed precision.
        let is_off =
            if wanted.is_mixed() { all().all(|key| key.role == Role::Weights) } else { all().next().is_none() };
        if is_off && wanted != config.precision {
            // Without a key, the edited text is refused.
            if let Some((path, word, is_read)) = precision_key(config, wanted, self.add_keys) {
                let after = spelled(&Value::Null, "", word, self.config.file.format);
                self.add_key(path, Setting::Precision, after, is_read);
            }
        }
        let has_weights = config.key(Role::Weights).is_some();
        for key in all().filter(|key| !key.row.mirror || !key.is_open()) {
            let stays = wanted == config.precision || key.is_left;
            let word = if stays { None } else { precision_word(key, &self.config.file.text, wanted, has_weights) };
            // What is off by default stays without a value.
            let word = word.filter(|word| word != "false" || key.entry.value != Value::Null);
            let present = || key.entry.value.bare().unwrap_or_else(|| key.entry.raw(&self.config.file.text).to_owned());
            self.replace(key, &word.unwrap_or_else(present), Some(Setting::Precision));
        }
    }

    fn set_others(&mut self) {
        let (config, settings) = (self.config, &self.decision.settings);
        let (tf32, checkpointing) = (settings.allow_tf32, settings.gradient_checkpointing);
        self.set_flag(Role::Tf32, Setting::AllowTf32, tf32, config.tf32);
        self.set_flag(Role::Checkpointing, Setting::GradientCheckpointing, checkpointing, config.checkpointing);
        if checkpointing && config.key(Role::Checkpointing).is_none() {
            self.add(Role::Checkpointing, Setting::GradientCheckpointing, "true".to_owned());
        }
        for key in config.with_role(Role::EvalBatch).filter(|_| self.decision.sets_evaluation) {
            self.replace(key, &settings.eval_batch_size.to_string(), Some(Setting::EvalBatchSize));
        }
    }

    fn set_flag(&mut self, role: Role, setting: Setting, planned: bool, now: Option<bool>) {
        for key in self.config.with_role(role) {
            let (text, wanted) = (self.config.file.text.as_str(), planned.to_string());
            let own = || key.entry.value.bare().filter(|_| now == Some(planned));
            // What is off by default, or set by another key, stays open.
            let open = || Some(key.entry.raw(text)).filter(|_| (!planned || now == Some(true)) && key.is_open());
            let word = open()
                .or_else(|| key.word(text, &wanted))
                .or_else(|| key.row.word_for(&wanted).filter(|_| key.is_open()));
            let word = own().or_else(|| word.map(str::to_owned)).unwrap_or(wanted.clone());
            self.replace(key, &word, Some(setting));
        }
    }
}

/// The path and word that are added for a precision, and whether the program reads them. Where the dialect has no key for the
/// precision, they are the planner's.
fn precision_key(config: &Config, wanted: Precision, add_keys: bool) -> Option<(&'static str, &'static str, bool)> {
    let dialect = config.dialect;
    let rows = || dialect.rows(Role::Precision);
    if dialect.is_plain() || rows().next().is_none() {
        return Some((Setting::Precision.name(), wanted.name(), add_keys && dialect.adds_on_request));
    }
    let default = dialect.default_of(Role::Precision, "", &config.entries).unwrap_or_default();
    let word = |row: &'static Key| match row.spelling {
        Spelling::FlagFor(precision) if precision == wanted => Some("true"),
        // What is on by default.
        Spelling::FlagFor(precision) if wanted == Precision::F32 && precision.name() == default => Some("false"),
        Spelling::Words => row.word_for(wanted.name()),
        _ => None,
    };
    let (row, word) = rows().filter_map(|row| Some((row, word(row)?))).min_by_key(|(row, _)| row.add.is_none())?;
    let first = row.names.iter().next().unwrap_or_default().trim_start_matches('.');
    Some((row.add.as_deref().unwrap_or(first), word, row.add.is_some()))
}

/// The key's value for another precision, without quotes; `None` where there is no word for it, or nothing to change.
fn precision_word(key: &MatchedKey, text: &str, wanted: Precision, has_weights: bool) -> Option<String> {
    match key.spelling {
        Spelling::FlagFor(precision) => {
            let is_pure = wanted == Precision::Bf16Params && has_weights && precision == Precision::MixedBf16;
            Some((wanted == precision || is_pure).to_string())
        }
        Spelling::AmpSwitch => Some(wanted.is_mixed().to_string()),
        // The format has no effect while mixed precision is off.
        _ if key.role == Role::AmpFormat && !wanted.is_mixed() => None,
        _ => {
            let prefix = if key.entry.raw(text).contains("torch.") { "torch." } else { "" };
            key.word(text, wanted.name()).map(|word| format!("{prefix}{word}"))
        }
    }
}

const MOST_LISTED: usize = 8;

/// A note on values that refer to changed keys.
pub(crate) fn following_values(
    entries: &[ConfigEntry],
    values: &[(String, Value)],
    changes: &[Change],
) -> Option<String> {
    let is_changed = |change: &&Change| change.state == ChangeState::Changed;
    let keys: HashSet<_> = changes.iter().filter(is_changed).map(|change| change.key.as_str()).collect();
    let changed: Vec<_> = entries.iter().filter(|entry| keys.contains(entry.shown.as_str())).collect();
    let is_meant = |names: &str| !names.is_empty() && changed.iter().any(|entry| ends(&entry.path, names));
    let follows = |(path, value): &&(String, Value)| {
        !keys.contains(path.as_str()) && value.references().any(|names| is_meant(names.trim_start_matches('.')))
    };
    let mut following = values.iter().filter(follows).map(|(path, _)| format!("`{path}`"));
    let listed = following.by_ref().take(MOST_LISTED).collect::<Vec<_>>().join(", ");
    let more = following.count();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!listed.is_empty()).then(|| format!("values that refer to changed keys change with them: {listed}{more}"))
}

/// Notes on keys that count micro-batches, whose size changes.
pub(crate) fn counts_of_micro_batches(config: &Config, from: u64, to: u64) -> impl Iterator<Item = String> + '_ {
    let note = move |key: &MatchedKey| {
        let shown = &key.entry.shown;
        let sizes = format!("{to} samples in place of {from}");
        // `1.0` is the whole epoch.
        let is_share = matches!(&key.entry.value, Value::Number(digits) if digits.contains('.'));
        let count = key.entry.value.count().filter(|count| *count > 0 && !is_share)?;
        let same = (count as f64 * from as f64 / to as f64 * 10.0).round() / 10.0;
        Some(format!("`{shown}` counts micro-batches, which have {sizes}: {same} have as many samples as the {count}"))
    };
    let keys = config.with_role(Role::MicroBatches).filter(move |key| from != to && !key.is_left);
    keys.filter_map(note)
}
