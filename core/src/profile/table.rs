use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::{Profile, ProfileId, builtin, validate};
use crate::source::{FileError, Source};

/// The profiles that a build or a run knows, by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileTable(BTreeMap<ProfileId, Profile>);

impl ProfileTable {
    /// The profiles that ship with this crate, parsed at the first call.
    pub fn builtin() -> &'static Self {
        static TABLE: OnceLock<ProfileTable> = OnceLock::new();
        TABLE.get_or_init(|| {
            let parse = |(_, file, text): &(&str, &str, &str)| {
                parse(Source { file, text }).expect("BUG: a shipped profile is invalid; its test must have failed")
            };
            builtin::PROFILES.iter().map(parse).collect()
        })
    }

    /// One shipped profile, without parsing the others.
    pub fn builtin_profile(id: &str) -> Option<Profile> {
        let (_, file, text) = builtin::PROFILES.iter().find(|(known, ..)| *known == id)?;
        parse(Source { file, text }).ok()
    }

    /// The ids of the shipped profiles, sorted.
    pub fn builtin_ids() -> impl Iterator<Item = &'static str> {
        builtin::PROFILES.iter().map(|(id, ..)| *id)
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

    /// Reads a profile from a table of a user's file. `base` names the profile whose figures it takes where it has none;
    /// a shipped profile of the same id is its own base.
    pub(crate) fn parse_user<'i>(
        id: &Spanned<toml::de::DeString<'i>>,
        mut own: Spanned<DeTable<'i>>,
        source: Source<'i>,
    ) -> Result<Profile, FileError> {
        let span = id.span();
        let base = match own.get_mut().remove("base") {
            Some(base) => {
                let name =
                    base.get_ref().as_str().ok_or_else(|| source.error(&base.span(), "base: expected a profile id"))?;
                let base_text = builtin_text(name).ok_or_else(|| {
                    source.error(
                        &base.span(),
                        format!("base: there is no profile `{name}`{}", crate::suggest(name, Self::builtin_ids())),
                    )
                })?;
                Some(base_text)
            }
            None => builtin_text(id.get_ref()),
        };
        let key = Spanned::new(span.clone(), "id".into());
        own.get_mut().insert(key, Spanned::new(span.clone(), DeValue::String(id.get_ref().clone())));
        if let Some(base) = base {
            let base = DeTable::parse(base).map_err(|error| source.toml_error(&error))?.into_inner();
            inherit(own.get_mut(), base);
        }
        let profile = Profile::deserialize(Deserializer::from(own)).map_err(|error| match error.span() {
            Some(_) => source.toml_error(&error),
            None => source.error(&span, error.message()),
        })?;
        validated(profile, source, span)
    }
}

impl FromIterator<Profile> for ProfileTable {
    fn from_iter<I: IntoIterator<Item = Profile>>(profiles: I) -> Self {
        Self(profiles.into_iter().map(|profile| (profile.id.clone(), profile)).collect())
    }
}

/// Reads one profile file.
///
/// # Errors
///
/// The first mistake of syntax or schema, or all contradictions between figures, with their place.
pub(super) fn parse(source: Source<'_>) -> Result<Profile, FileError> {
    let profile: Profile = toml::from_str(source.text).map_err(|error| source.toml_error(&error))?;
    validated(profile, source, 0..0)
}

fn builtin_text(id: &str) -> Option<&'static str> {
    builtin::PROFILES.iter().find(|(known, ..)| *known == id).map(|(.., text)| *text)
}

/// Takes from `base` what `own` does not say, table by table.
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

fn validated(profile: Profile, source: Source<'_>, span: core::ops::Range<usize>) -> Result<Profile, FileError> {
    let mistakes = validate::mistakes(&profile);
    if mistakes.is_empty() { Ok(profile) } else { Err(source.error(&span, mistakes.join("; "))) }
}
