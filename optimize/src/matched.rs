//! The keys of a config that its dialect lists, with their values; and those that the user assigns.

use core::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::suggest;
use serde::Deserialize;

use crate::dialect::{DIALECTS, Dialect, Key, Role, Spelling, ends};
use crate::document::{ConfigEntry, ConfigText, Sharing, TAG, Value};
use crate::error::{MOST_MISTAKES, OptimizeError};
use crate::names::Words;
use crate::schema::{Place, SchemaKeys};
use crate::vocabulary::{UnknownKey, has_no_value, is_beside_training, unknown};

/// A key of the file that a dialect lists.
#[derive(Clone, Debug)]
pub(crate) struct MatchedKey {
    pub role: Role,
    pub spelling: Spelling,
    pub entry: ConfigEntry,
    pub row: &'static Key,
    /// True if the value stays as it is.
    pub is_left: bool,
    /// Meaning by the user, in place of that of the value.
    pub assumed: Option<String>,
}

/// Meaning of a key without an effect.
const HARMLESS: &str = "harmless";

/// The keys of a file that its dialect lists, and the mistakes in their values.
pub(crate) struct MatchedKeys<'t> {
    pub source: Source<'t>,
    pub dialect: &'static Dialect,
    /// True if a key has a factor of the samples of a step, or the user assigns one.
    pub has_step: bool,
    pub all: Vec<MatchedKey>,
    pub mistakes: Vec<FileError>,
    /// Mistakes that are none in a file which is no training config.
    pub unknown: Vec<FileError>,
}

/// Meaning of a word.
pub(crate) enum Meaning<'w> {
    Known(&'w str),
    /// No word, or one without a meaning: the config leaves the setting open.
    Open,
    Unknown,
}

impl<'t> MatchedKeys<'t> {
    /// Finds the keys of settings. A key that the user assigns replaces all others of its setting.
    pub(crate) fn new(index: &Index<'_>, file: &'t ConfigText, overrides: &[KeyOverride]) -> Self {
        let dialect = dialect(index);
        let matches = matches(dialect, index);
        let has_step = !overrides.is_empty() || matches.iter().any(|(row, _)| row.role.is_of_step());
        let (all, mistakes, source) = (Vec::new(), Vec::new(), file.source());
        let unknown = unknown_keys(index, &matches, dialect, overrides, source);
        let mut keys = Self { source, dialect, has_step, all, mistakes, unknown };
        let mut targets = Targets::new(index, &matches);
        let replaced: Vec<Role> = overrides.iter().filter_map(|it| it.role).collect();
        for (row, entry) in matches.iter().copied().filter(|(row, _)| row.beside.is_met(index.entries)) {
            if overrides.iter().any(|it| it.role.is_some() && it.key == entry.shown) || replaced.contains(&row.role) {
                continue;
            }
            let kept = || overrides.iter().filter(|it| it.role.is_none() && it.key == entry.shown);
            let assumed = kept().find_map(|it| it.assumed.clone());
            keys.add(MatchedKey::new(row, entry.clone(), kept().next().is_some(), assumed), &mut targets);
        }
        for (assigned, role) in overrides.iter().filter_map(|it| Some((it, it.role?))) {
            let own = matches.iter().find(|(row, entry)| row.role == role && entry.shown == assigned.key);
            let row = own.map(|(row, _)| *row).or_else(|| dialect.rows(role).chain(Dialect::plain().rows(role)).next());
            let entry = index.entries.iter().find(|entry| entry.shown == assigned.key);
            keys.all.extend(row.zip(entry).map(|(row, entry)| MatchedKey::new(row, entry.clone(), false, None)));
        }
        let is_false = |value: &Value| matches!(value, Value::Text(text) if text.eq_ignore_ascii_case("false"));
        let is_quoted = |key: &&MatchedKey| key.assumed.is_none() && is_false(&key.entry.value);
        let quoted = keys.all.iter().filter(is_quoted).map(|key| {
            let message =
                format!("`{}`: many programs read `false` in quotes as true: remove the quotes", key.entry.shown);
            source.error(&key.entry.place(), message)
        });
        keys.mistakes.extend(quoted.take(MOST_MISTAKES));
        let settings = keys.all.iter().map(|key| &key.entry);
        keys.mistakes.extend(given_twice(index, settings, keys.source));
        keys
    }

    /// Adds a key whose value can be one of its role; a reference that cannot be followed is a mistake.
    fn add(&mut self, mut key: MatchedKey, targets: &mut Targets<'_, '_>) {
        // `selective` is neither on nor off.
        key.is_left |= matches!(key.meaning(self.source.text), Meaning::Known("stays"));
        let (role, value) = (key.role, &key.entry.value);
        if let Some(target) = value.reference() {
            let (target, of) = targets.find(&target).unzip();
            if of.flatten() == Some(role) || role == Role::Samples {
                return;
            }
            match target {
                Some(target) if !role.is_of_step() => key.entry.value = target.value.clone(),
                _ if key.is_left => {}
                _ if self.mistakes.len() >= MOST_MISTAKES => return,
                _ => {
                    let (shown, raw) = (&key.entry.shown, key.entry.raw(self.source.text));
                    let named = target.zip(role.name());
                    let remedy =
                        named.map(|(it, name)| format!("name the key with the number: --at {name}={}", it.shown));
                    let remedy = remedy.unwrap_or_else(|| "put a value in its place".to_owned());
                    let message =
                        format!("`{shown}` refers to `{raw}`: {remedy}, or leave it as it is: --leave {shown}");
                    return self.mistakes.push(self.source.error(&key.entry.place(), message));
                }
            }
            key.is_left |= role != Role::Method;
            self.all.push(key);
            return;
        }
        let is_usable = match role {
            // The size of a whole data set is neither a share, such as 0.8, nor one of the parts in a list.
            Role::Samples => value.count().is_some_and(|count| count > 1) && !key.entry.shown.contains('['),
            // `accumulate_grad_batches: {0: 8}`, but not a table with the name of another setting.
            Role::Accumulation => true,
            Role::Method => !matches!(value, Value::List(nodes) if nodes.is_empty()),
            Role::Dim if key.spelling == Spelling::Any => true,
            _ => !matches!(value, Value::Table(_)),
        };
        if is_usable {
            self.all.push(key);
        }
    }

    pub(crate) fn with_role(&self, role: Role) -> impl Iterator<Item = &MatchedKey> {
        self.all.iter().filter(move |found| found.role == role)
    }

    /// The only key of a role; several are a mistake, which proposes one of a table that no other merges.
    fn only(&mut self, role: Role) -> Option<MatchedKey> {
        let has_mirror = self.with_role(role).any(|key| key.row.mirror && !key.is_open());
        let found = self.with_role(role).filter(|key| !key.is_open() || !key.row.mirror && !has_mirror);
        let mut found: Vec<MatchedKey> = found.cloned().collect();
        found.sort_by_key(|key| (key.row.mirror, key.entry.sharing));
        let first = found.first()?.clone();
        let (one, text) = (first.entry.shown.clone(), first.entry.raw(self.source.text));
        for other in &found[1..] {
            let (name, shown) = (role.name().unwrap_or("value"), &other.entry.shown);
            let message = match other.row.mirror {
                _ if *shown == one => continue,
                true if other.entry.value == first.entry.value => continue,
                true => format!("`{shown}` is not `{one}`, which is {text}: both have to be equal"),
                false => format!(
                    "`{one}` and `{shown}` both look like the {name} of training; choose one: --at {name}={one}"
                ),
            };
            self.mistakes.push(self.source.error(&other.entry.key_span, message));
            break;
        }
        Some(first)
    }

    /// The count of a role; `None` where the file leaves it open.
    pub(crate) fn count(&mut self, role: Role, range: RangeInclusive<u64>) -> Option<u64> {
        let read = self.only(role)?.count(range, self.source);
        self.keep(read)
    }

    /// The flag of a role; `None` where the file leaves it open.
    pub(crate) fn flag(&mut self, role: Role) -> Option<bool> {
        let read = self.only(role)?.flag(self.source);
        self.keep(read)
    }

    /// The value that was read; a mistake is recorded.
    pub(crate) fn keep<T>(&mut self, read: Result<Option<T>, FileError>) -> Option<T> {
        read.unwrap_or_else(|mistake| {
            self.mistakes.push(mistake);
            None
        })
    }
}

impl MatchedKey {
    fn new(row: &'static Key, mut entry: ConfigEntry, is_left: bool, assumed: Option<String>) -> Self {
        // `update_freq: [16]`
        if let (true, Value::List(nodes)) = (row.role.is_of_step(), &entry.value)
            && let [one] = nodes.as_slice()
        {
            // Aliases of the list would change with it.
            entry.sharing = if entry.aliases.is_empty() { entry.sharing } else { Sharing::Shared };
            (entry.span, entry.value) = (one.span.clone(), one.value.clone());
        }
        let spelling = match (row.role, row.spelling, &entry.value) {
            // `mixed_precision: true`
            (Role::Precision, Spelling::Words, Value::Flag(true))
                if !row.words.iter().flatten().any(|(_, word)| word == "true") =>
            {
                Spelling::AmpSwitch
            }
            (_, spelling, _) => spelling,
        };
        Self { role: row.role, spelling, entry, row, is_left, assumed }
    }

    /// Returns true if the config leaves the value open.
    pub(crate) fn is_open(&self) -> bool {
        match &self.entry.value {
            _ if self.assumed.is_some() => false,
            Value::Null => true,
            Value::Text(text) => text == "auto",
            // `batch: -1`, `batch: 0.7` of the memory.
            Value::Number(digits) if self.role.is_of_step() => {
                digits == "-1" || digits.parse().is_ok_and(|share: f64| share > 0.0 && share < 1.0)
            }
            _ => false,
        }
    }

    /// Meaning of the value among the words of the dialect.
    pub(crate) fn meaning(&self, text: &str) -> Meaning<'static> {
        if let Some(assumed) = &self.assumed {
            let known = self.row.words.iter().flatten().find(|(meaning, word)| meaning == assumed || word == assumed);
            return match known {
                Some((meaning, _)) if !meaning.is_empty() => Meaning::Known(meaning),
                None if assumed != HARMLESS => Meaning::Unknown,
                _ => Meaning::Open,
            };
        }
        let joined;
        let word = match &self.entry.value {
            Value::Null => "null",
            Value::Text(word) | Value::Number(word) => word.as_str(),
            // `no` is a flag in YAML.
            Value::Flag(_) => self.entry.raw(text),
            Value::List(nodes) if nodes.is_empty() => "null",
            // `fsdp: [full_shard, auto_wrap]`, `[[["flash"], 12]]`
            value => {
                joined = value.texts().join(" ");
                // The keys of tables are matched by themselves.
                if joined.is_empty() { "{}" } else { &joined }
            }
        };
        let word = word.rsplit("torch.").next().unwrap_or(word).to_ascii_lowercase();
        // `configs/zero-3.json`
        let is_file = self.row.names.has("deepspeed");
        let word = if is_file { word.rsplit('/').next().unwrap_or_default().replace('-', "_") } else { word };
        let known = |word: &str| self.row.known(word);
        let flag = || match &self.entry.value {
            Value::Flag(flag) => known(if *flag { "true" } else { "false" }).or_else(|| known("no").filter(|_| !*flag)),
            _ => None,
        };
        match known(&word).or_else(flag) {
            Some((meaning, _)) if meaning.is_empty() => Meaning::Open,
            Some((meaning, _)) if meaning == "?" => Meaning::Unknown,
            Some((meaning, _)) => Meaning::Known(meaning),
            // No program documents `auto` for a method.
            None if word == "auto" && self.role == Role::Method => Meaning::Unknown,
            None if ["auto", "none", "null", ""].contains(&word.as_str()) => Meaning::Open,
            None if word == "false" && matches!(self.role, Role::Feature | Role::Method) => Meaning::Open,
            None => Meaning::Unknown,
        }
    }

    /// The word for a meaning in the vocabulary of the present value; `None` if there is none, or the meaning stays.
    pub(crate) fn word(&self, text: &str, wanted: &str) -> Option<&'static str> {
        let now = match self.meaning(text) {
            Meaning::Known(now) if now != wanted => now,
            _ => return None,
        };
        let raw = self.entry.value.bare().unwrap_or_default().to_ascii_lowercase();
        let own = raw.rsplit("torch.").next().unwrap_or(&raw);
        let lists = |word: &str| self.row.words.iter().find(|all| all.iter().any(|(is, it)| is == now && it == word));
        let vocabulary = lists(own).or_else(|| lists("no")).or_else(|| lists("false"))?;
        vocabulary.iter().find(|(meaning, _)| meaning == wanted).map(|(_, word)| word.as_str())
    }

    /// A mistake that names the words which the planner reads.
    pub(crate) fn unknown(&self, source: Source<'_>) -> FileError {
        let known = self.row.words.iter().flatten().filter(|(meaning, _)| meaning != "?");
        let mut words: Vec<&str> = known.map(|(_, word)| word.as_str()).collect();
        let mut seen = HashSet::new();
        words.retain(|word| seen.insert(*word) && !word.contains('*'));
        if words.len() > 8 {
            words.splice(8.., ["…"]);
        }
        let texts = self.entry.value.texts().join(" ");
        let (shown, value) =
            (&self.entry.shown, if texts.is_empty() { self.entry.value.kind() } else { texts.as_str() });
        let why = &self.row.why;
        let expected = match (why.is_empty(), words.is_empty()) {
            (false, _) => format!(", because {why}"),
            (true, true) => String::new(),
            (true, false) => format!(": expected {}", words.join(", ")),
        };
        let remedy = match self.role {
            Role::Method => format!("to plan as if it had no effect: --assume {shown}={HARMLESS}"),
            Role::Dim => format!("give it with --dim {}=VALUE", self.row.dim),
            _ => format!("to plan with another meaning: --assume {shown}=MEANING"),
        };
        let message = format!("`{shown}`: `{value}` is not modelled{expected}; {remedy}");
        source.error(&self.entry.place(), message)
    }

    /// The count; `None` where the file leaves it open.
    pub(crate) fn count(&self, range: RangeInclusive<u64>, source: Source<'_>) -> Result<Option<u64>, FileError> {
        let value = &self.entry.value;
        if self.is_open() {
            return Ok(None);
        }
        let assumed = self.assumed.as_ref().map(|digits| digits.parse().ok());
        let count = assumed.unwrap_or_else(|| value.count()).filter(|count| range.contains(count));
        count.map(Some).ok_or_else(|| {
            let found = match value {
                Value::Number(digits)
                    if digits.starts_with('0') && digits.parse::<u64>().is_ok_and(|count| count > 0) =>
                {
                    &format!("{digits}, which is octal in YAML 1.1")
                }
                Value::Number(digits) => digits.as_str(),
                other => other.kind(),
            };
            let (min, max) = (range.start(), *range.end());
            let is_large_power = max.is_power_of_two() && max > 1 << 16;
            let max = if is_large_power { format!("2^{}", max.ilog2()) } else { max.to_string() };
            let name = &self.entry.shown;
            let remedy =
                Some(format!(": put a number in its place, or --assume {name}=NUMBER")).filter(|_| !value.is_scalar());
            let remedy = remedy.unwrap_or_default();
            let message = format!("`{name}`: expected a whole number from {min} to {max}, found {found}{remedy}");
            source.error(&self.entry.place(), message)
        })
    }

    /// The flag; numbers 0 and 1 are flags, too, and the words of the dialect. `None` where the file leaves it open.
    pub(crate) fn flag(&self, source: Source<'_>) -> Result<Option<bool>, FileError> {
        let value = &self.entry.value;
        let word = match self.meaning(source.text) {
            Meaning::Known("stays") => return Ok(None),
            Meaning::Known(word) => word.to_owned(),
            Meaning::Open if self.is_open() => return Ok(None),
            _ if self.assumed.is_some() => self.assumed.clone().unwrap_or_default(),
            _ => value.bare().unwrap_or_default().to_ascii_lowercase(),
        };
        match word.as_str() {
            "true" | "yes" | "on" | "1" | "offload" => return Ok(Some(true)),
            "false" | "no" | "off" | "0" => return Ok(Some(false)),
            _ if !self.row.words.is_empty() => return Err(self.unknown(source)),
            _ => {}
        }
        let found = match value {
            Value::Text(text) => format!("`{text}`"),
            Value::Number(digits) => digits.clone(),
            other => other.kind().to_owned(),
        };
        let name = &self.entry.shown;
        let message =
            format!("`{name}`: expected true or false, found {found}; to plan with one: --assume {name}=true");
        Err(source.error(&self.entry.place(), message))
    }
}

/// Mistakes at keys that no table reads and that touch what is planned, and at assumptions that are no meaning.
fn unknown_keys(
    index: &Index<'_>,
    matches: &[(&Key, &ConfigEntry)],
    dialect: &'static Dialect,
    overrides: &[KeyOverride],
    source: Source<'_>,
) -> Vec<FileError> {
    // `adapter: {type: lora}` is no value of `adapter`.
    let is_value = |(row, entry): &&(&Key, &ConfigEntry)| {
        // `distributed: false` is a switch of other keys.
        let is_switch = row.dim == "distributed" && has_no_value(&entry.value, false);
        let takes_tables = matches!(row.role, Role::Accumulation | Role::Method);
        !is_switch && (takes_tables || !matches!(entry.value, Value::Table(_)))
    };
    let values = matches.iter().filter(is_value);
    let mut read: HashSet<*const ConfigEntry> = values.map(|(_, entry)| core::ptr::from_ref(*entry)).collect();
    let named = |key: &str| index.entries.iter().find(|entry| entry.shown == key);
    let mut mistakes = Vec::new();
    for given in overrides {
        let Some(entry) = named(&given.key) else { continue };
        match &given.assumed {
            Some(assumed) if assumed != HARMLESS && !read.contains(&core::ptr::from_ref(entry)) => {
                let message = format!(
                    "`{}`: no table reads this key, so that it can only be `{HARMLESS}`; --dim gives a model's dimension",
                    given.key
                );
                mistakes.push(source.error(&entry.key_span, message));
            }
            None if given.role.is_none() => continue,
            _ => {}
        }
        read.insert(core::ptr::from_ref(entry));
    }
    let is_left = |key: &UnknownKey<'_>| {
        key.can_be_left && overrides.iter().any(|it| it.role.is_none() && it.key == key.entry.shown)
    };
    let unknown = unknown(dialect, index.entries, &read).into_iter().filter(|key| !is_left(key));
    mistakes.extend(unknown.map(|UnknownKey { entry, reason, can_be_left }| {
        let shown = &entry.shown;
        let option = if can_be_left { format!("--leave {shown}") } else { format!("--assume {shown}={HARMLESS}") };
        source.error(&entry.key_span, format!("`{shown}` {reason}; to plan as if it had no effect: {option}"))
    }));
    mistakes
}

/// A kind of file that is no training config.
#[derive(Deserialize)]
struct OtherFile {
    name: String,
    recognised: Vec<Words>,
}

static OTHERS: LazyLock<HashMap<String, Vec<OtherFile>>> =
    LazyLock::new(|| toml::from_str(include_str!("dialects/others.toml")).expect("BUG: the table of files is valid"));

/// The entries of a file by the names of their keys.
pub(crate) struct Index<'e> {
    pub entries: &'e [ConfigEntry],
    by_name: HashMap<&'e str, Vec<&'e ConfigEntry>>,
}

impl<'e> Index<'e> {
    pub(crate) fn new(entries: &'e [ConfigEntry]) -> Self {
        let mut by_name: HashMap<&str, Vec<&ConfigEntry>> = HashMap::new();
        for entry in entries.iter().filter(|entry| !entry.key.is_empty()) {
            by_name.entry(entry.name()).or_default().push(entry);
        }
        Self { entries, by_name }
    }

    /// The entries whose path ends in these names.
    pub(crate) fn find<'i>(&'i self, names: &'i str) -> impl Iterator<Item = &'e ConfigEntry> + 'i {
        let last = names.rsplit('.').next().unwrap_or(names);
        let entries = self.by_name.get(last).map_or(&[][..], Vec::as_slice);
        entries.iter().copied().filter(move |entry| ends(&entry.path, names))
    }

    fn has_all_of_one(&self, sets: &[Words]) -> bool {
        let has = |names: &str| names.split('|').any(|names| self.find(names).next().is_some());
        let agrees = |names: &str| names.strip_prefix('!').map_or_else(|| has(names), |names| !has(names));
        sets.iter().any(|set| set.iter().all(agrees))
    }
}

/// Keys of a dialect: its own, and those of hand-written configs for settings that it has no key for.
pub(crate) fn read_by(dialect: &'static Dialect) -> impl Iterator<Item = &'static Key> {
    let is_own = |other: &Key| dialect.keys.iter().any(|key| key.role == other.role && key.dim == other.dim);
    let others = Dialect::plain()
        .keys
        .iter()
        .filter(move |other| !dialect.is_plain() && (other.role == Role::Method || !is_own(other)));
    dialect.keys.iter().chain(others)
}

/// The entries of a file that are keys of the dialect, in their order. The name with more tables counts first.
fn matches<'e>(dialect: &'static Dialect, index: &Index<'e>) -> Vec<(&'static Key, &'e ConfigEntry)> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut names: Vec<_> = read_by(dialect).flat_map(|key| key.names.iter().map(move |names| (key, names))).collect();
    let is_own = |key: &Key| dialect.keys.iter().any(|own| core::ptr::eq(own, key));
    let keys = dialect.schema.as_ref().map(|schema| SchemaKeys::new(schema, index.entries));
    names.sort_by_key(|(key, names)| (!is_own(key), Reverse(names.matches('.').count())));
    for (key, names) in names {
        // `transforms: [{dtype: float32}]`, `callback: {model_parallel_size: 1}`
        let has_tables = key.role.is_of_precision() || key.role == Role::Method && !is_own(key);
        let is_other = |entry: &ConfigEntry| has_tables && is_beside_training(entry);
        let is_listed = |entry: &ConfigEntry| {
            is_own(key) || keys.as_ref().is_none_or(|keys| matches!(keys.place(entry), Place::Read | Place::Open))
        };
        let entries = index.find(names).filter(|entry| !is_other(entry) && is_listed(entry));
        let entries = entries.filter(|entry| seen.insert(core::ptr::from_ref(*entry)));
        found.extend(entries.map(|entry| (key, entry)));
    }
    found.sort_by_key(|(_, entry)| entry.key_span.start);
    found
}

/// The error for a file that is no training config, and for one of an ecosystem that is not read, unless the user assigns keys.
pub(crate) fn other_file(index: &Index<'_>, overrides: &[KeyOverride]) -> Option<OptimizeError> {
    let find = |table: &str| OTHERS[table].iter().find(|other| index.has_all_of_one(&other.recognised));
    if let Some(other) = find("file").filter(|_| overrides.is_empty()) {
        return Some(OptimizeError::NotTraining { found: format!("it looks like {}", other.name) });
    }
    let is_assigned = overrides.iter().any(|it| it.role.is_some());
    let other = find("ecosystem").filter(|_| dialect(index).adds_on_request && !is_assigned)?;
    Some(OptimizeError::NotRead { name: other.name.clone() })
}

/// The dialect of a file.
fn dialect(index: &Index<'_>) -> &'static Dialect {
    DIALECTS.iter().find(|dialect| index.has_all_of_one(&dialect.recognised)).unwrap_or_else(Dialect::plain)
}

/// The values that references can mean.
struct Targets<'i, 'e> {
    index: &'i Index<'e>,
    roles: HashMap<*const ConfigEntry, Role>,
    /// Number of names in the longest path.
    longest: usize,
    /// The first values by so many last names of their paths.
    by_names: HashMap<usize, HashMap<&'e [String], &'e ConfigEntry>>,
}

impl<'i, 'e> Targets<'i, 'e> {
    fn new(index: &'i Index<'e>, matches: &[(&Key, &'e ConfigEntry)]) -> Self {
        let roles = matches.iter().map(|(key, entry)| (core::ptr::from_ref(*entry), key.role)).collect();
        let longest = index.entries.iter().map(|entry| entry.path.len()).max().unwrap_or_default();
        Self { index, roles, longest, by_names: HashMap::new() }
    }

    /// The first value that a reference can mean, with the role of its key.
    fn find(&mut self, names: &str) -> Option<(&'e ConfigEntry, Option<Role>)> {
        let is_value = |entry: &&ConfigEntry| entry.value.is_scalar() && entry.value.reference().is_none();
        let parts: Vec<String> = names.split('.').map(str::to_owned).collect();
        let entry = if parts.iter().any(String::is_empty) {
            self.index.find(names).find(is_value)?
        } else {
            let count = Some(parts.len()).filter(|count| *count <= self.longest)?;
            let values = self.by_names.entry(count).or_insert_with(|| {
                let values = self.index.entries.iter().filter(|entry| !entry.key.is_empty()).filter(is_value);
                let ends =
                    values.filter_map(|entry| Some((&entry.path[entry.path.len().checked_sub(count)?..], entry)));
                // The first value replaces the later ones.
                ends.rev().collect()
            });
            *values.get(parts.as_slice())?
        };
        Some((entry, self.roles.get(&core::ptr::from_ref(entry)).copied()))
    }
}

/// A mistake at the last of two entries with one path, if a setting is the first of them or within it.
fn given_twice<'e>(
    index: &Index<'e>,
    mut settings: impl Iterator<Item = &'e ConfigEntry>,
    source: Source<'_>,
) -> Option<FileError> {
    let (mut last, mut repeated): (HashMap<&str, &ConfigEntry>, HashSet<&str>) = Default::default();
    for entry in index.entries.iter().filter(|entry| !entry.key.is_empty() && entry.key != TAG) {
        if last.insert(&entry.shown, entry).is_some() {
            repeated.insert(&entry.shown);
        }
    }
    let dropped_for = |entry: &'e ConfigEntry| {
        let tables = entry.shown.match_indices('.').map(|(end, _)| &entry.shown[..end]);
        let paths = [entry.shown.as_str()].into_iter().chain(tables);
        let mut last = paths.filter(|path| repeated.contains(path)).filter_map(|path| Some((path, *last.get(path)?)));
        let is_in = |last: &ConfigEntry| (last.key_span.start..last.span.end).contains(&entry.key_span.start);
        last.find(|(_, last)| !is_in(last))
    };
    let (entry, (path, last)) = settings.find_map(|entry| Some((entry, dropped_for(entry)?)))?;
    let message = if entry.path.starts_with(&last.path) {
        format!("`{path}` is given twice, and programs read the last: delete the other")
    } else {
        format!("two keys have the path `{path}`, as one of their names has a dot: rename one")
    };
    Some(source.error(&last.key_span, message))
}

/// A key that the user assigns to a setting, or leaves alone.
#[derive(Clone, Debug)]
pub struct KeyOverride {
    /// The setting; `None` for a key that stays as it is.
    pub(crate) role: Option<Role>,
    pub(crate) key: String,
    /// Meaning of a key that stays as it is.
    pub(crate) assumed: Option<String>,
}

impl KeyOverride {
    /// Assigns a key of the file to a setting, as `--at SETTING=KEY` does.
    ///
    /// # Errors
    ///
    /// Where there is no such setting, or no such key with a single value.
    pub fn new(setting: &str, key: &str, entries: &[ConfigEntry]) -> Result<Self, OptimizeError> {
        let names = || Role::NAMED.iter().map(|(name, _)| *name);
        let role = Role::NAMED.iter().find(|(name, _)| *name == setting).map(|(_, role)| *role);
        let role = role.ok_or_else(|| OptimizeError::NoSetting {
            name: setting.to_owned(),
            hint: suggest(setting, names()),
            names: names().collect::<Vec<_>>().join(", "),
        })?;
        let is_there = entries.iter().any(|entry| entry.shown == key && entry.value.is_scalar());
        if is_there {
            Ok(Self { role: Some(role), key: key.to_owned(), assumed: None })
        } else {
            Err(no_key(setting, key, entries))
        }
    }

    /// Leaves a key of the file as it is, as `--leave KEY` does.
    ///
    /// # Errors
    ///
    /// Where there is no such key.
    pub fn leave(key: &str, entries: &[ConfigEntry]) -> Result<Self, OptimizeError> {
        let is_there = entries.iter().any(|entry| entry.shown == key);
        let kept = Self { role: None, key: key.to_owned(), assumed: None };
        if is_there { Ok(kept) } else { Err(no_key("", key, entries)) }
    }

    /// Leaves a key as it is, and plans with this meaning of it, as `--assume KEY=MEANING` does.
    ///
    /// # Errors
    ///
    /// Where there is no such key.
    pub fn assume(key: &str, meaning: &str, entries: &[ConfigEntry]) -> Result<Self, OptimizeError> {
        Ok(Self { assumed: Some(meaning.to_owned()), ..Self::leave(key, entries)? })
    }
}

fn no_key(setting: &str, key: &str, entries: &[ConfigEntry]) -> OptimizeError {
    let hint = suggest(key, entries.iter().map(|entry| entry.shown.as_str()));
    let option = if setting.is_empty() { "--leave ".to_owned() } else { format!("--at {setting}=") };
    OptimizeError::NoKey { option, key: key.to_owned(), hint }
}
