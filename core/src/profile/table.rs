//! The table of profiles: the shipped ones, and those of users.

use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::figures::Figure;
use super::validate::{Fault, Strictness, faults};
use super::{Profile, ProfileId, ProfileNames};
use crate::device::PciId;
use crate::source::{FileError, Source};

/// Profiles by id.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProfileTable(BTreeMap<ProfileId, Profile>);

impl ProfileTable {
    /// The profiles that ship with this crate, parsed at the first call.
    pub fn builtin() -> &'static Self {
        static TABLE: OnceLock<ProfileTable> = OnceLock::new();
        TABLE.get_or_init(|| PROFILES.iter().map(Shipped::profile).cloned().collect())
    }

    /// One shipped profile, parsed at the first call.
    pub fn builtin_profile(id: &str) -> Option<Profile> {
        Self::shipped_profile(id).cloned()
    }

    /// [`builtin_profile`](Self::builtin_profile), borrowed.
    pub(crate) fn shipped_profile(id: &str) -> Option<&'static Profile> {
        Shipped::find(id).map(Shipped::profile)
    }

    /// The ids of the shipped profiles, sorted.
    pub fn builtin_ids() -> impl Iterator<Item = &'static str> {
        PROFILES.iter().map(|shipped| shipped.id)
    }

    /// Shipped profiles that satisfy `wanted(id, names, pci_ids)`; only these are parsed.
    pub(crate) fn shipped_where(wanted: impl Fn(&str, &[&str], &[PciId]) -> bool) -> impl Iterator<Item = Profile> {
        let wanted = move |shipped: &&Shipped| wanted(shipped.id, shipped.names, shipped.pci_ids);
        PROFILES.iter().filter(wanted).map(Shipped::profile).cloned()
    }

    /// The profile with this id.
    pub fn get(&self, id: &str) -> Option<&Profile> {
        self.0.get(id)
    }

    /// All profiles, ordered by id.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.0.values()
    }

    /// Adds a profile, or replaces the one with its id.
    pub fn insert(&mut self, profile: Profile) {
        self.0.insert(profile.id.clone(), profile);
    }

    /// Reads a profile from a table of a user's file. Missing figures come from the profile named by `base`, or from
    /// the shipped profile of the same id, unless they depend on figures that the user changes.
    ///
    /// # Errors
    ///
    /// Errors with their positions: an unknown base, all missing keys, a wrong type, all figures that are out of range or
    /// contradict each other.
    pub fn parse_user<'i>(
        id: &Spanned<toml::de::DeString<'i>>,
        mut own: Spanned<DeTable<'i>>,
        source: Source<'i>,
    ) -> Result<Profile, Vec<FileError>> {
        let (name, span) = (id.get_ref(), id.span());
        let places = places(own.get_ref());
        let base = match own.get_mut().remove("base") {
            Some(base) => Some(find_base(&base, source).map_err(|mistake| vec![mistake])?),
            None => Shipped::find(id.get_ref()),
        };
        let key = Spanned::new(span.clone(), "id".into());
        own.get_mut().insert(key, Spanned::new(span.clone(), DeValue::String(id.get_ref().clone())));
        if let Some(base) = base {
            let mut base = DeTable::parse(base.text).map_err(|error| vec![source.toml_error(&error)])?.into_inner();
            drop_dependents(&mut base, own.get_ref());
            inherit(own.get_mut(), base);
        }
        let missing = missing_keys(own.get_ref());
        if missing.is_some() {
            inherit(own.get_mut(), examples());
        }
        let remedy =
            "`base` takes them from a similar GPU, `cargo gpu-tuned targets --here --toml` from the GPU itself";
        let missing = missing.map(|keys| source.error(&span, format!("profile.{name}: {keys}\n{remedy}")));
        let parsed = Profile::deserialize(Deserializer::from(own)).map_err(|error| match error.span() {
            Some(_) => source.toml_error(&error),
            None => source.error(&span, error.message()),
        });
        let profile = match (missing, parsed) {
            (None, Ok(profile)) => profile,
            (missing, parsed) => return Err([missing, parsed.err()].into_iter().flatten().collect()),
        };
        let error = |fault: Fault| match places.get(&*fault.key) {
            Some(place) => source.error(place, fault.to_string()),
            None => source.error(&span, format!("profile.{name}: {fault}; the figure is that of the base")),
        };
        let errors: Vec<FileError> = faults(&profile, Strictness::User).into_iter().map(error).collect();
        if errors.is_empty() { Ok(profile) } else { Err(errors) }
    }
}

/// Finds the shipped profile that a user's profile is based on.
fn find_base(base: &Spanned<DeValue<'_>>, source: Source<'_>) -> Result<&'static Shipped, FileError> {
    let expected = || source.error(&base.span(), "base: expected a profile id");
    let name = base.get_ref().as_str().ok_or_else(expected)?;
    let unknown = || {
        let message = if is_own(name, source) {
            format!("base: `{name}` is a profile of this file; a base is a shipped profile, so copy its keys")
        } else {
            format!("base: there is no profile `{name}`{}", ProfileNames::new(&[]).suggest_or_advise(name))
        };
        source.error(&base.span(), message)
    };
    Shipped::find(name).ok_or_else(unknown)
}

/// Returns true if the file has a profile of this name.
fn is_own(name: &str, source: Source<'_>) -> bool {
    let document = DeTable::parse(source.text).map(Spanned::into_inner).unwrap_or_default();
    document.get("profile").and_then(|profiles| profiles.get_ref().as_table()?.get(name)).is_some()
}

impl FromIterator<Profile> for ProfileTable {
    fn from_iter<I: IntoIterator<Item = Profile>>(profiles: I) -> Self {
        Self(profiles.into_iter().map(|profile| (profile.id.clone(), profile)).collect())
    }
}

/// A shipped profile: its text, and the properties that identify its GPU.
struct Shipped {
    id: &'static str,
    file: &'static str,
    text: &'static str,
    names: &'static [&'static str],
    pci_ids: &'static [PciId],
    parsed: OnceLock<Profile>,
}

/// Entry of a shipped profile: its id, the names of its GPU, and NVIDIA's PCI device ids.
macro_rules! shipped {
    ($id:literal, $names:expr, [$($device:literal),*]) => {
        Shipped {
            id: $id,
            file: concat!("core/profiles/", $id, ".toml"),
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/profiles/", $id, ".toml")),
            names: &$names,
            pci_ids: &[$(PciId { vendor: 0x10de, device: $device }),*],
            parsed: OnceLock::new(),
        }
    };
}

include!("../../profiles/builtin.in");

impl Shipped {
    fn find(id: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|shipped| shipped.id == id)
    }

    fn profile(&self) -> &Profile {
        let Self { file, text, .. } = *self;
        // A test checks the figures, so that macros need not.
        let parse = || toml::from_str(text).map_err(|error| Source { file, text }.toml_error(&error));
        self.parsed.get_or_init(|| parse().expect("BUG: a shipped profile is invalid; its test must have failed"))
    }
}

/// Copies missing values from `base` to `own`, table by table.
fn inherit<'i>(own: &mut DeTable<'i>, base: DeTable<'i>) {
    for (key, value) in base {
        match own.get_mut(&key) {
            None => drop(own.insert(key, value)),
            Some(mine) => {
                if let (DeValue::Table(mine), DeValue::Table(theirs)) = (mine.get_mut(), value.into_inner()) {
                    inherit(mine, theirs);
                }
            }
        }
    }
}

/// Lists the required keys that the table of a profile lacks, then the optional ones, each with its meaning and unit; `None`
/// if it lacks no required key.
fn missing_keys(table: &DeTable<'_>) -> Option<String> {
    let absent = Figure::all().filter(|figure| !figure.example.is_empty() && find(table, figure.key).is_none());
    let (required, optional): (Vec<&Figure>, Vec<&Figure>) = absent.partition(|figure| figure.absence.is_empty());
    let count = match required.len() {
        0 => return None,
        1 => "1 key".to_owned(),
        count => format!("{count} keys"),
    };
    let line = |figure: &&Figure| {
        let Figure { key, example, absence, .. } = figure;
        let absence = if absence.is_empty() { String::new() } else { format!("; {absence}") };
        format!("\n  {key}: {}, such as {example}{absence}", figure.meaning())
    };
    let lines = |figures: &[&Figure]| figures.iter().map(line).collect::<String>();
    let optional = if optional.is_empty() { String::new() } else { format!("\noptional:{}", lines(&optional)) };
    Some(format!("{count} missing:{}{optional}", lines(&required)))
}

/// The required keys with examples, which let the other keys of a profile be checked.
fn examples() -> DeTable<'static> {
    static TEXT: OnceLock<String> = OnceLock::new();
    let required = || Figure::all().filter(|figure| !figure.example.is_empty() && figure.absence.is_empty());
    let text = TEXT.get_or_init(|| required().map(|figure| format!("{} = {}\n", figure.key, figure.example)).collect());
    DeTable::parse(text).expect("BUG: the examples are no TOML").into_inner()
}

/// Removes figures of a base that follow from a figure which the user's table changes.
fn drop_dependents(base: &mut DeTable<'_>, own: &DeTable<'_>) {
    let value = |table: &DeTable<'_>, key| Some(find(table, key)?.as_integer()?.to_string());
    for Figure { key, followers, .. } in Figure::all().filter(|figure| !figure.followers.is_empty()) {
        let is_changed = find(own, key).is_some() && value(base, key) != value(own, key);
        let table = key.split_once('.').and_then(|(table, _)| base.get_mut(table)).filter(|_| is_changed);
        if let Some(DeValue::Table(table)) = table.map(Spanned::get_mut) {
            for key in *followers {
                table.remove(*key);
            }
        }
    }
}

/// Positions of the values in a table, by key with dots between tables.
fn places(table: &DeTable<'_>) -> BTreeMap<String, Range<usize>> {
    let mut places = BTreeMap::new();
    for (key, value) in table {
        let key = key.get_ref();
        if let Some(inner) = value.get_ref().as_table() {
            places.extend(self::places(inner).into_iter().map(|(rest, place)| (format!("{key}.{rest}"), place)));
        }
        places.insert(key.to_string(), value.span());
    }
    places
}

fn find<'t, 'i>(table: &'t DeTable<'i>, path: &str) -> Option<&'t DeValue<'i>> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let value = table.get(first)?.get_ref();
    rest.map_or(Some(value), |rest| find(value.as_table()?, rest))
}

#[cfg(test)]
mod tests {
    use super::Figure;
    use crate::profile::ProfileTable;

    #[test]
    fn the_examples_are_figures_of_a_shipped_profile() {
        let profile = ProfileTable::builtin_profile("rtx4090").expect("shipped");
        let table = profile.to_table();
        for key in Figure::all().filter(|figure| !figure.example.is_empty()) {
            let whole = toml::Value::Table(table.clone());
            let value = key.key.split('.').try_fold(&whole, |value, name| value.get(name)).cloned();
            let example: toml::Table = format!("it = {}", key.example).parse().expect("TOML");
            let (value, example) = (value.expect(key.key), &example["it"]);
            let peak = |value: &toml::Value| value.get("tflops").cloned();
            assert!(value == *example || (peak(&value).is_some() && peak(&value) == peak(example)), "{}", key.key);
        }
    }
}
