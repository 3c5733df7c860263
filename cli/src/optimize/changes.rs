//! What a plan changes in a config: values at their places, and keys that it lacks.

use gpu_tuned_core::plan::Plan;
use gpu_tuned_core::{Precision, Provenance, Setting};
use serde::Serialize;

use super::config::Config;
use super::found::Found;
use super::keys::{Family, Role, Spelling};
use super::leaf::Leaf;
use super::precision;
use super::spell::{self, plain, spelled};
use super::step;
use super::text::{Edit, Format, Insertion, Value, applied};

/// A setting as the file has it and as it is planned.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Change {
    pub setting: &'static str,
    /// The key, with those of its tables; where there is none, the one that it could have.
    pub key: String,
    /// As the file has it.
    pub before: Option<String>,
    /// As it is planned, spelled as the file spells it.
    pub after: String,
    pub why: String,
    pub provenance: Provenance,
    pub state: State,
}

/// What becomes of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Same,
    Changed,
    /// The key is added.
    Added,
    /// The file has no key for it, and its program may know none.
    ByHand,
    /// The file has no key for it, and it follows from others.
    Implied,
}

/// The changes, and the text with them.
pub(super) struct Changes {
    pub all: Vec<Change>,
    pub text: String,
}

/// Makes changes.
struct Maker<'a, 'n> {
    config: &'a Config<'n>,
    format: Format,
    text: &'a str,
    plan: &'a Plan,
    all: Vec<Change>,
    edits: Vec<Edit>,
    added: Vec<(String, String)>,
}

impl Changes {
    /// What makes the config as the plan has it. With `add`, keys that it lacks are added even where its program may not
    /// know them.
    pub(super) fn of(config: &Config<'_>, format: Format, leaves: &[Leaf<'_>], plan: &Plan, add: bool) -> Self {
        let text = config.found.source.text;
        let mut maker = Maker { config, format, text, plan, all: Vec::new(), edits: Vec::new(), added: Vec::new() };
        maker.counts(add);
        maker.precision(add);
        maker.flags(add);
        maker.eval_batch();
        let Maker { mut all, mut edits, added, .. } = maker;
        if let Some(neighbour) = neighbour(config, leaves).filter(|_| !added.is_empty()) {
            let tables = neighbour.shown.strip_suffix(neighbour.entry.key.as_str()).unwrap_or_default();
            for change in all.iter_mut().filter(|change| change.state == State::Added) {
                change.key.insert_str(0, tables);
            }
            let insertion = Insertion {
                beside_key: neighbour.entry.key_span.clone(),
                beside_value: neighbour.entry.node.span.clone(),
                in_braces: text.get(neighbour.table.span.start..).is_some_and(|table| table.starts_with('{')),
                added,
            };
            edits.extend(insertion.edits(format, text));
        }
        edits.retain(|edit| text.get(edit.span.clone()) != Some(&edit.text));
        Self { all, text: applied(text, edits) }
    }
}

impl Maker<'_, '_> {
    /// Batch, accumulation, workers, and batches prepared ahead.
    fn counts(&mut self, add: bool) {
        let settings = &self.plan.settings;
        let config = self.config;
        self.count(Role::GlobalBatch, None, self.plan.schedule.global_batch, add);
        self.count(Role::Batch, Some(Setting::BatchSize), settings.batch_size, add);
        self.count(Role::Accumulation, Some(Setting::GradientAccumulation), settings.gradient_accumulation, add);
        self.count(Role::Workers, Some(Setting::NumWorkers), settings.num_workers, add);
        if let Some(found) = config.key(Role::Prefetch) {
            let has_workers = config.key(Role::Workers).is_some() || self.adds(Role::Workers, add);
            let workers = if has_workers { settings.num_workers } else { config.workers.unwrap_or(1) };
            let depth = match found.spelling {
                Spelling::CountPerWorker => settings.prefetch_depth.div_ceil(workers.max(1)),
                _ => settings.prefetch_depth,
            };
            self.count(Role::Prefetch, Some(Setting::PrefetchDepth), depth, add);
        }
    }

    /// Whether a key that the file lacks is added.
    fn adds(&self, role: Role, add: bool) -> bool {
        add || self.config.family.key(role).is_some()
    }

    fn count(&mut self, role: Role, setting: Option<Setting>, planned: u64, add: bool) {
        let reason = self.reason(setting);
        if let Some(found) = self.config.key(role).cloned() {
            self.replace(&found, &planned.to_string(), setting, reason);
        } else if let (Some(setting), Some(before), Role::Accumulation) = (setting, self.implied(), role) {
            self.all.push(Change {
                setting: setting.name(),
                key: setting.name().to_owned(),
                before: Some(before.to_string()),
                after: planned.to_string(),
                why: reason.0,
                provenance: reason.1,
                state: State::Implied,
            });
        } else if let (Some(setting), true) = (setting, setting.is_some_and(|setting| self.is_worth(setting, planned)))
        {
            self.lacking(role, setting, planned.to_string(), reason, add);
        }
    }

    /// How often gradients are accumulated, where that follows from other keys.
    fn implied(&self) -> Option<u64> {
        step::implied(self.config, self.config.batch?, self.plan.schedule.world_size)
    }

    /// Whether a key that the file lacks is to be there: not for what is so without it.
    fn is_worth(&self, setting: Setting, planned: u64) -> bool {
        match setting {
            Setting::GradientAccumulation => planned > 1,
            Setting::NumWorkers => self.config.family != Family::Lightning,
            _ => false,
        }
    }

    fn reason(&self, setting: Option<Setting>) -> (String, Provenance) {
        let of = |setting| self.plan.reasons.iter().find(|reason| reason.setting == setting);
        let reason = setting.and_then(of);
        reason.map_or_else(
            || ("what an optimizer step holds: it is part of what the run means".to_owned(), Provenance::Declared),
            |reason| (reason.why.clone(), reason.provenance),
        )
    }

    /// Writes a value in the place of another.
    fn replace(
        &mut self,
        found: &Found<'_>,
        word: &str,
        setting: Option<Setting>,
        (why, provenance): (String, Provenance),
    ) {
        let entry = found.leaf.entry;
        let raw = found.raw(self.text);
        let is_same = match &entry.node.value {
            Value::Number(digits) => digits == word,
            Value::Text(text) => text == word,
            Value::Flag(flag) => flag.to_string() == word,
            _ => false,
        };
        let after = if is_same { raw.to_owned() } else { spelled(&entry.node.value, raw, word, self.format) };
        let state = if after == raw { State::Same } else { State::Changed };
        self.all.push(Change {
            setting: setting.map_or("global_batch", Setting::name),
            key: found.leaf.shown.clone(),
            before: Some(if raw.is_empty() { "null".to_owned() } else { raw.to_owned() }),
            after: after.clone(),
            why,
            provenance,
            state,
        });
        // `batch_size:` without a value.
        let edit = if entry.node.span.is_empty() {
            let colon =
                self.text[entry.key_span.end..].find(':').map_or(entry.key_span.end, |at| entry.key_span.end + at + 1);
            Edit { span: colon..colon, text: format!(" {after}") }
        } else {
            Edit { span: entry.node.span.clone(), text: after }
        };
        self.edits.push(edit);
    }

    /// A setting without a key: added where that does something, else left to the user.
    fn lacking(
        &mut self,
        role: Role,
        setting: Setting,
        after: String,
        (why, provenance): (String, Provenance),
        add: bool,
    ) {
        let name = self.config.family.key(role).unwrap_or(setting.name());
        let key = self.as_siblings(name);
        let state = if self.adds(role, add) { State::Added } else { State::ByHand };
        if state == State::Added {
            self.added.push((key.clone(), after.clone()));
        }
        self.all.push(Change { setting: setting.name(), key, before: None, after, why, provenance, state });
    }

    /// A name spelled as the batch's key is.
    fn as_siblings(&self, name: &str) -> String {
        let sibling = self.config.key(Role::Batch).map(|found| found.leaf.entry.key.as_str());
        sibling.map_or_else(|| name.to_owned(), |sibling| spell::like(name, sibling))
    }

    /// Every key that has to do with it.
    fn precision(&mut self, add: bool) {
        let asked = self.plan.settings.precision;
        let reason = self.reason(Some(Setting::Precision));
        let all: Vec<_> = self.config.found.of(Role::Precision).cloned().collect();
        if all.is_empty() && asked != Precision::F32 {
            return self.lacking_precision(asked, reason, add);
        }
        let has_switch = all.iter().any(|one| matches!(one.spelling, Spelling::FlagFor(_)));
        for found in &all {
            let is_name = !matches!(found.spelling, Spelling::FlagFor(_));
            let is_of_amp = found.leaf.path.iter().any(|name| name.contains("amp") || name.contains("autocast"));
            // Which 16 bits automatic precision takes does not matter where it is off.
            let is_idle = is_name && is_of_amp && has_switch && asked == Precision::F32;
            let word =
                if is_idle || asked == self.config.precision { None } else { precision::word(found, self.text, asked) };
            let word = word.unwrap_or_else(|| plain(&found.leaf.entry.node.value, found.raw(self.text)));
            self.replace(found, &word, Some(Setting::Precision), reason.clone());
        }
    }

    /// Another precision than f32, where the file has no key for any.
    fn lacking_precision(&mut self, asked: Precision, (why, provenance): (String, Provenance), add: bool) {
        let of_family = match (self.config.family, asked) {
            (Family::HuggingFace, Precision::MixedBf16) => Some("bf16"),
            (Family::HuggingFace, Precision::MixedF16) => Some("fp16"),
            _ => None,
        };
        let name = asked.name();
        let quoted = if self.format == Format::Yaml { name.to_owned() } else { format!("\"{name}\"") };
        let (key, after) = of_family
            .map_or_else(|| (self.as_siblings("precision"), quoted), |key| (key.to_owned(), "true".to_owned()));
        let state = if add || of_family.is_some() { State::Added } else { State::ByHand };
        if state == State::Added {
            self.added.push((key.clone(), after.clone()));
        }
        self.all.push(Change { setting: Setting::Precision.name(), key, before: None, after, why, provenance, state });
    }

    /// TF32 and gradient checkpointing.
    fn flags(&mut self, add: bool) {
        let settings = &self.plan.settings;
        let (tf32, checkpointing) = (settings.allow_tf32, settings.gradient_checkpointing);
        if let Some(found) = self.config.key(Role::Tf32).cloned() {
            let word = match found.spelling {
                Spelling::Words { .. } if self.config.tf32 == Some(tf32) => plain(&found.leaf.entry.node.value, ""),
                Spelling::Words { yes, no } => (if tf32 { yes } else { no[0] }).to_owned(),
                _ => tf32.to_string(),
            };
            let reason = self.reason(Some(Setting::AllowTf32));
            self.replace(&found, &word, Some(Setting::AllowTf32), reason);
        }
        let reason = self.reason(Some(Setting::GradientCheckpointing));
        if let Some(found) = self.config.key(Role::Checkpointing).cloned() {
            self.replace(&found, &checkpointing.to_string(), Some(Setting::GradientCheckpointing), reason);
        } else if checkpointing {
            self.lacking(Role::Checkpointing, Setting::GradientCheckpointing, "true".to_owned(), reason, add);
        }
    }

    fn eval_batch(&mut self) {
        let reason = self.reason(Some(Setting::EvalBatchSize));
        let all: Vec<_> = self.config.found.of(Role::EvalBatch).cloned().collect();
        for found in all {
            self.replace(
                &found,
                &self.plan.settings.eval_batch_size.to_string(),
                Some(Setting::EvalBatchSize),
                reason.clone(),
            );
        }
    }
}

/// The entry that keys are added beside: of one line, in the table that they belong into.
fn neighbour<'l, 'n>(config: &Config<'n>, leaves: &'l [Leaf<'n>]) -> Option<&'l Leaf<'n>> {
    let is_trainers = |leaf: &&Leaf<'_>| leaf.path.iter().rev().nth(1).is_some_and(|table| table == "trainer");
    let is_short = |leaf: &&Leaf<'_>| leaf.is_single() && !leaf.entry.node.span.is_empty();
    let batch = &config.key(Role::Batch)?.leaf.shown;
    let beside_batch = || leaves.iter().find(|leaf| leaf.shown == *batch);
    let is_lightnings = config.family == Family::Lightning && config.key(Role::Accumulation).is_none();
    let in_trainer = leaves.iter().filter(is_trainers).find(is_short).filter(|_| is_lightnings);
    in_trainer.or_else(beside_batch)
}
