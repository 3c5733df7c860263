//! Names of profiles, and corrections of misspelt ones.

use core::borrow::Borrow;
use core::fmt;
use core::str::FromStr;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Profile, ProfileTable};
use crate::ParseError;
use crate::device::{refusal_of_name, unbranded};
use crate::text::through_text;

/// The name of a profile, and of the Cargo feature that selects it: `rtx4090`, `a100-sxm4-80gb`.
///
/// Lower-case ASCII letters, digits and hyphens, beginning with a letter and not ending in a hyphen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProfileId(String);

impl ProfileId {
    /// The profile used when no GPU is named.
    pub const GENERIC: &'static str = "generic";
    /// The feature that selects the GPU of the build machine. No profile may have this name.
    pub const NATIVE: &'static str = "native";

    /// Parses the name of a user's profile, which is not [`GENERIC`](Self::GENERIC).
    ///
    /// # Errors
    ///
    /// [`ParseError`]: the text is no name of a feature, or the name has another meaning.
    pub fn of_user(text: &str) -> Result<Self, ParseError> {
        let id: Self = text.parse()?;
        match reserved(text) {
            Some(reason) => Err(reserved_error(text, reason)),
            None => Ok(id),
        }
    }

    /// Name of a profile that has none yet.
    pub(super) fn placeholder() -> Self {
        Self("detected".to_owned())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names with another meaning, each with it.
const RESERVED: [(&str, &str); 6] = [
    (ProfileId::NATIVE, "this feature selects the GPU of the build machine"),
    (ProfileId::GENERIC, "this is the shipped profile for builds that name no GPU"),
    ("default", "Cargo enables the feature of this name by itself"),
    ("cuda", "the feature of this name enables training on CUDA"),
    ("cpu", "measurements on the CPU have this name"),
    ("all", "this selects every GPU"),
];

fn reserved(name: &str) -> Option<&'static str> {
    RESERVED.iter().find(|(reserved, _)| *reserved == name).map(|(_, reason)| *reason)
}

fn reserved_error(name: &str, reason: &str) -> ParseError {
    ParseError(format!("no profile may have the name `{name}`: {reason}; use another name, such as `my-{name}`"))
}

impl FromStr for ProfileId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_valid =
            text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(allowed) && !text.ends_with('-');
        if !is_valid {
            return Err(ParseError(format!(
                "`{text}` is not a profile id: expected lower-case letters, digits and hyphens, beginning with a letter, such as \
             \"rtx4090\""
            )));
        }
        match reserved(text) {
            Some(reason) if text != Self::GENERIC => Err(reserved_error(text, reason)),
            _ => Ok(Self(text.to_owned())),
        }
    }
}

through_text!(ProfileId);

impl Borrow<str> for ProfileId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProfileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The profiles that a feature or a command can name: shipped ones and the user's, without `generic`.
#[derive(Clone, Debug)]
pub struct ProfileNames {
    ids: BTreeSet<ProfileId>,
}

impl ProfileNames {
    /// The shipped profiles, and the user's `own`.
    pub fn new(own: &[Profile]) -> Self {
        let shipped = ProfileTable::builtin_ids().filter_map(|id| id.parse().ok());
        let mut ids: BTreeSet<ProfileId> = shipped.chain(own.iter().map(|profile| profile.id.clone())).collect();
        ids.remove(ProfileId::GENERIC);
        Self { ids }
    }

    /// The profile with this name.
    pub fn get(&self, name: &str) -> Option<ProfileId> {
        self.ids.get(name).cloned()
    }

    /// Returns the features that name a profile, sorted.
    pub fn among<'a>(&self, features: impl IntoIterator<Item = &'a String>) -> Vec<ProfileId> {
        let named: BTreeSet<ProfileId> = features.into_iter().filter_map(|feature| self.get(feature)).collect();
        named.into_iter().collect()
    }

    /// Formats `; did you mean …?` for a name without a profile, the reason why such a GPU has none, else the way to a profile
    /// for a GPU outside the table.
    pub fn suggest_or_advise(&self, name: &str) -> String {
        self.suggest(name).or_else(|| refuse(name)).unwrap_or_else(|| {
            "; gpu-tuned plans for NVIDIA GPUs: on a machine with this one, `cargo gpu-tuned targets --here --toml` prints its profile"
                .to_owned()
        })
    }

    /// Formats `; did you mean …?` with another spelling, the memory sizes or else the versions of that GPU, or the
    /// name that a typing error turns into this one. `None` for another GPU.
    pub fn suggest(&self, name: &str) -> Option<String> {
        let wanted = bare(name);
        let text = unbranded(name);
        let left_out = |id: &str| names_left_out(&text, id, &[]);
        let least = self.names().filter_map(left_out).min();
        let is_same = |id: &str| bare(id) == wanted;
        let is_shorter = |id: &str| least.is_some() && left_out(id) == least;
        let is_typo = |id: &str| is_typo(name, id);
        let kinds: [&dyn Fn(&str) -> bool; 3] = [&is_same, &is_shorter, &is_typo];
        let found = |is_meant: &&dyn Fn(&str) -> bool| did_you_mean(self.names().filter(|id| is_meant(id)));
        kinds.iter().find_map(found)
    }

    /// Returns true if a name differs from a profile's only in case, hyphens and underscores, or by a typing error.
    pub fn is_similar(&self, name: &str) -> bool {
        let wanted = bare(name);
        self.names().any(|id| bare(id) == wanted || is_typo(name, id))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.ids.iter().map(ProfileId::as_str)
    }
}

/// Formats `; reason` for the name of a GPU of another maker, or of one that is too old.
pub fn refuse(name: &str) -> Option<String> {
    refusal_of_name(name).map(|reason| format!("; {reason}"))
}

/// Formats `; did you mean …?`; `None` without ids.
pub fn did_you_mean<'a>(ids: impl Iterator<Item = &'a str>) -> Option<String> {
    let ids: Vec<String> = ids.map(|id| format!("`{id}`")).collect();
    let (last, others) = ids.split_last()?;
    let others = if others.is_empty() { String::new() } else { others.join(", ") + " or " };
    Some(format!("; did you mean {others}{last}?"))
}

/// Number of words that `text`, an [`unbranded`] name, leaves out of the name or id `whole`: `a10040gb` leaves none out of
/// `a100-pcie-40gb`. Sizes of memory and forms of a board do not count. `None` if the text does not begin with the model, or has
/// other words than those of `whole` and `more`.
pub fn names_left_out(text: &str, whole: &str, more: &[&str]) -> Option<usize> {
    let lower = whole.to_ascii_lowercase();
    let is_brand = |word: &str| unbranded(word).is_empty();
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !is_brand(word)).collect();
    let has_digit = |word: &&str| word.contains(|c: char| c.is_ascii_digit()) && !is_size(word);
    let end = words.iter().position(has_digit).map(|number| number + 1);
    let end = end.or_else(|| words.iter().position(|word| is_size(word))).unwrap_or(words.len());
    let rest = text.strip_prefix(words[..end].concat().as_str()).filter(|_| end > 0)?;
    fewest_left_out(rest, &[&words[end..], more].concat())
}

fn fewest_left_out(text: &str, words: &[&str]) -> Option<usize> {
    if text.is_empty() {
        return Some(words.iter().filter(|word| !is_size(word) && !is_secondary(word)).count());
    }
    let taken = |at: usize| {
        let others = [&words[..at], &words[at + 1..]].concat();
        // `40g` is short for `40gb`, `sxm` for `sxm4`.
        let short = words[at].strip_suffix('b').filter(|_| is_size(words[at]));
        let short = short.unwrap_or_else(|| words[at].trim_end_matches(|c: char| c.is_ascii_digit()));
        let rest =
            [words[at], short].into_iter().find_map(|word| text.strip_prefix(word).filter(|_| !word.is_empty()))?;
        fewest_left_out(rest, &others)
    };
    (0..words.len()).filter_map(taken).min()
}

/// Returns true for a size of memory, such as `80gb`.
fn is_size(word: &str) -> bool {
    word.strip_suffix("gb").is_some_and(|size| size.parse::<u32>().is_ok())
}

/// Returns true for a word that tells no products apart for those who type it.
fn is_secondary(word: &str) -> bool {
    word.starts_with("sxm") || ["pcie", "nvl", "gpu", "edition", "generation", "hgx"].contains(&word)
}

fn bare(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns true if `name` is likely `id` with a typing error.
///
/// Every digit and every short group of letters distinguishes GPUs: an `rtx5065` is no `rtx5060`, an `l40g` no `l40s`. Within
/// a group, exchanged characters are a typing error: `rtx4900`. Within a group of three letters or more, a wrong, a missing or
/// an extra letter is one, too: `rtz4090`.
fn is_typo(name: &str, id: &str) -> bool {
    let (name, id) = (groups(name), groups(id));
    name.len() == id.len() && name.iter().zip(&id).all(|(group, meant)| is_slip(group, meant))
}

fn is_slip(group: &str, meant: &str) -> bool {
    const MIN_LETTERS: usize = 3;
    /// Bytes of the longest character.
    const MOST_BYTES: usize = 4;
    let sorted = |text: &str| {
        let mut characters: Vec<char> = text.chars().collect();
        characters.sort_unstable();
        characters
    };
    let is_word = |text: &str| text.len() >= MIN_LETTERS && !text.starts_with(|c: char| c.is_ascii_digit());
    let is_misspelt = || is_word(group) && is_word(meant) && strsim::damerau_levenshtein(group, meant) <= 1;
    // Comparing long texts takes long.
    group.len().abs_diff(meant.len()) <= MOST_BYTES && (sorted(group) == sorted(meant) || is_misspelt())
}

/// Groups of letters and of digits, in lower case.
fn groups(name: &str) -> Vec<String> {
    let mut groups: Vec<String> = Vec::new();
    let mut last = None;
    for character in name.chars() {
        let kind = character.is_alphanumeric().then(|| character.is_ascii_digit());
        match groups.last_mut().filter(|_| kind == last) {
            Some(group) if kind.is_some() => group.extend(character.to_lowercase()),
            _ if kind.is_some() => groups.push(character.to_lowercase().collect()),
            _ => {}
        }
        last = kind;
    }
    groups
}

#[cfg(test)]
mod tests;
