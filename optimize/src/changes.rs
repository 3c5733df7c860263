//! Changes that a plan makes to a config: new values in place of old ones, and keys that the file lacks.

use gpu_tuned_core::plan::Plan;
use gpu_tuned_core::{Precision, Provenance, Setting};
use serde::Serialize;

use crate::config::Config;
use crate::dialect::{Family, Role, Spelling};
use crate::document::{ConfigText, Edit, Format, Insertion, apply};
use crate::entry::ConfigEntry;
use crate::matched::MatchedKey;
use crate::precision;
use crate::spelling::{like, spelled};
use crate::step;

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
    pub state: State,
}

/// Effect of a plan on a setting in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The value stays.
    Same,
    /// The value changes.
    Changed,
    /// A key is added.
    Added,
    /// The file lacks the key, and its program may not read one.
    ByHand,
    /// The file lacks the key; other keys imply the value.
    Implied,
}

pub(crate) struct Changes {
    pub all: Vec<Change>,
    pub text: String,
}

type Reason = (String, Provenance);

struct Editor<'a> {
    config: &'a Config,
    file: &'a ConfigText,
    plan: &'a Plan,
    /// True if the program reads every key that is added.
    add_keys: bool,
    all: Vec<Change>,
    edits: Vec<Edit>,
    added: Vec<(String, String)>,
}

impl Changes {
    /// Edits the config so that it has the plan's settings.
    pub(crate) fn new(
        config: &Config,
        file: &ConfigText,
        entries: &[ConfigEntry],
        plan: &Plan,
        add_keys: bool,
    ) -> Self {
        let mut editor = Editor { config, file, plan, add_keys, all: Vec::new(), edits: Vec::new(), added: Vec::new() };
        editor.set_counts();
        editor.set_precision();
        editor.set_others();
        let Editor { mut all, mut edits, added, .. } = editor;
        if let Some(neighbour) = neighbour(config, entries).filter(|_| !added.is_empty()) {
            let tables = neighbour.shown.strip_suffix(neighbour.key.as_str()).unwrap_or_default();
            for change in all.iter_mut().filter(|change| change.state == State::Added) {
                change.key.insert_str(0, tables);
            }
            let insertion = Insertion {
                beside_key: neighbour.key_span.clone(),
                beside_value: neighbour.span.clone(),
                in_braces: neighbour.in_braces,
                added,
            };
            edits.extend(insertion.edits(file.format, &file.text));
        }
        edits.retain(|edit| file.text.get(edit.span.clone()) != Some(&edit.text));
        Self { all, text: apply(&file.text, edits) }
    }
}

impl Editor<'_> {
    /// Sets batch, accumulation, workers, and batches prepared ahead.
    fn set_counts(&mut self) {
        let (config, settings) = (self.config, &self.plan.settings);
        self.set_count(Role::GlobalBatch, None, self.plan.schedule.global_batch);
        self.set_count(Role::Batch, Some(Setting::BatchSize), settings.batch_size);
        self.set_count(Role::Accumulation, Some(Setting::GradientAccumulation), settings.gradient_accumulation);
        self.set_count(Role::Workers, Some(Setting::NumWorkers), settings.num_workers);
        if let Some(key) = config.matched(Role::Prefetch) {
            let has_workers = config.key(Role::Workers).is_some() || self.adds(Role::Workers);
            let workers = if has_workers { settings.num_workers } else { config.workers.unwrap_or(1) };
            let depth = match key.spelling {
                Spelling::CountPerWorker => settings.prefetch_depth.div_ceil(workers.max(1)),
                _ => settings.prefetch_depth,
            };
            self.set_count(Role::Prefetch, Some(Setting::PrefetchDepth), depth);
        }
    }

    /// Returns true if a key that the file lacks is added.
    fn adds(&self, role: Role) -> bool {
        self.add_keys || self.config.family.key(role).is_some()
    }

    fn set_count(&mut self, role: Role, setting: Option<Setting>, planned: u64) {
        if let Some(key) = self.config.matched(role) {
            return self.replace(key, &planned.to_string(), setting);
        }
        let Some(setting) = setting else { return };
        let ranks = self.plan.schedule.world_size;
        let implied = || step::implied_accumulation(self.config, self.config.batch?, ranks);
        if let Some(before) = implied().filter(|_| role == Role::Accumulation) {
            let (why, provenance) = self.reason(Some(setting));
            self.all.push(Change {
                setting: setting.name(),
                key: setting.name().to_owned(),
                before: Some(before.to_string()),
                after: planned.to_string(),
                why,
                provenance,
                state: State::Implied,
            });
            return;
        }
        // A key that says what holds without it is not added.
        let is_needed = match setting {
            Setting::GradientAccumulation => planned > 1,
            Setting::NumWorkers => self.config.family != Family::Lightning,
            _ => false,
        };
        if is_needed {
            self.add(role, setting, planned.to_string());
        }
    }

    fn reason(&self, setting: Option<Setting>) -> Reason {
        let reason = setting.and_then(|setting| self.plan.reasons.iter().find(|reason| reason.setting == setting));
        let global_batch =
            || ("samples of an optimizer step: part of the run's results".to_owned(), Provenance::Declared);
        reason.map_or_else(global_batch, |reason| (reason.why.clone(), reason.provenance))
    }

    fn replace(&mut self, key: &MatchedKey, word: &str, setting: Option<Setting>) {
        let (entry, text) = (&key.entry, self.file.text.as_str());
        let raw = entry.raw(text);
        let is_same = entry.value.bare().is_some_and(|bare| bare == word);
        let after = if is_same { raw.to_owned() } else { spelled(&entry.value, raw, word, self.file.format) };
        let (why, provenance) = self.reason(setting);
        self.all.push(Change {
            setting: setting.map_or("global_batch", Setting::name),
            key: entry.shown.clone(),
            before: Some(if raw.is_empty() { "null".to_owned() } else { raw.to_owned() }),
            after: after.clone(),
            why,
            provenance,
            state: if after == raw { State::Same } else { State::Changed },
        });
        self.edits.push(if entry.span.is_empty() {
            // `batch_size:` without a value.
            let end = entry.key_span.end;
            let colon = text[end..].find(':').map_or(end, |at| end + at + 1);
            Edit { span: colon..colon, text: format!(" {after}") }
        } else {
            Edit { span: entry.span.clone(), text: after }
        });
    }

    /// Adds a key for a setting where the program reads it; else leaves that to the user.
    fn add(&mut self, role: Role, setting: Setting, after: String) {
        let name = self.config.family.key(role).unwrap_or(setting.name());
        let (key, is_read) = (self.like_siblings(name), self.adds(role));
        self.add_key(key, setting, after, is_read);
    }

    fn add_key(&mut self, key: String, setting: Setting, after: String, is_read: bool) {
        let (why, provenance) = self.reason(Some(setting));
        let state = if is_read { State::Added } else { State::ByHand };
        if is_read {
            self.added.push((key.clone(), after.clone()));
        }
        self.all.push(Change { setting: setting.name(), key, before: None, after, why, provenance, state });
    }

    /// A name in the style of the batch's key.
    fn like_siblings(&self, name: &str) -> String {
        let sibling = self.config.matched(Role::Batch).map(|key| key.entry.key.as_str());
        sibling.map_or_else(|| name.to_owned(), |sibling| like(name, sibling))
    }

    fn set_precision(&mut self) {
        let (config, wanted) = (self.config, self.plan.settings.precision);
        if config.matched(Role::Precision).is_none() {
            if wanted != Precision::F32 {
                self.add_precision(wanted);
            }
            return;
        }
        let has_switch = config.with_role(Role::Precision).any(precision::is_switch);
        for key in config.with_role(Role::Precision) {
            // The format of automatic mixed precision has no effect while that is off.
            let is_idle = !precision::is_switch(key) && precision::is_amp(key) && has_switch;
            let stays = wanted == config.precision || is_idle && wanted == Precision::F32;
            let word = if stays { None } else { precision::word(key, &self.file.text, wanted) };
            let present = || key.entry.value.bare().unwrap_or_else(|| key.entry.raw(&self.file.text).to_owned());
            self.replace(key, &word.unwrap_or_else(present), Some(Setting::Precision));
        }
    }

    fn add_precision(&mut self, wanted: Precision) {
        let switch = match (self.config.family, wanted) {
            (Family::HuggingFace, Precision::MixedBf16) => Some("bf16"),
            (Family::HuggingFace, Precision::MixedF16) => Some("fp16"),
            _ => None,
        };
        if let Some(switch) = switch {
            return self.add_key(switch.to_owned(), Setting::Precision, "true".to_owned(), true);
        }
        let name = wanted.name();
        let after = if self.file.format == Format::Yaml { name.to_owned() } else { format!("\"{name}\"") };
        self.add_key(self.like_siblings("precision"), Setting::Precision, after, self.add_keys);
    }

    /// Sets TF32, activation checkpointing and the batch of evaluation.
    fn set_others(&mut self) {
        let (config, settings) = (self.config, &self.plan.settings);
        let (tf32, checkpointing) = (settings.allow_tf32, settings.gradient_checkpointing);
        if let Some(key) = config.matched(Role::Tf32) {
            let word = match key.spelling {
                Spelling::HighOrHighest if config.tf32 == Some(tf32) => key.entry.value.bare().unwrap_or_default(),
                Spelling::HighOrHighest => (if tf32 { "high" } else { "highest" }).to_owned(),
                _ => tf32.to_string(),
            };
            self.replace(key, &word, Some(Setting::AllowTf32));
        }
        if let Some(key) = config.matched(Role::Checkpointing) {
            self.replace(key, &checkpointing.to_string(), Some(Setting::GradientCheckpointing));
        } else if checkpointing {
            self.add(Role::Checkpointing, Setting::GradientCheckpointing, "true".to_owned());
        }
        for key in config.with_role(Role::EvalBatch) {
            self.replace(key, &settings.eval_batch_size.to_string(), Some(Setting::EvalBatchSize));
        }
    }
}

/// The entry beside which keys are added: on one line, in the table of the trainer or of the batch.
fn neighbour<'e>(config: &Config, entries: &'e [ConfigEntry]) -> Option<&'e ConfigEntry> {
    let batch = config.key(Role::Batch)?;
    let is_short = |entry: &&ConfigEntry| entry.value.is_scalar() && !entry.span.is_empty();
    let in_trainer = || entries.iter().filter(|entry| entry.tables().next() == Some("trainer")).find(is_short);
    let is_lightning = config.family == Family::Lightning && config.key(Role::Accumulation).is_none();
    in_trainer().filter(|_| is_lightning).or_else(|| entries.iter().find(|entry| entry.shown == batch))
}
