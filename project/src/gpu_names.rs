//! Names of GPUs in any spelling.

#[cfg(test)]
mod tests;

use gpu_tuned_core::profile::{Profile, ProfileNames, ProfileTable};
use thiserror::Error;

/// A name without a profile.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no profile `{name}`{hint}")]
pub struct UnknownGpu {
    /// The name as given.
    pub name: String,
    /// Near names: `; did you mean …?`.
    pub hint: String,
}

/// Minimum length of a number that can mean a GPU without its series.
const MIN_NUMBER_LENGTH: usize = 4;

/// Maximum number of near names in an error.
const MAX_LISTED: usize = 6;

/// Returns the named profiles, each once. Each item has the words of one or several names, as in `RTX 4090 H200`.
///
/// # Errors
///
/// [`UnknownGpu`].
pub fn profiles<'t>(table: &'t ProfileTable, items: &[Vec<&str>]) -> Result<Vec<&'t Profile>, UnknownGpu> {
    let all: Vec<&Profile> = table.iter().collect();
    let mut found: Vec<&Profile> = Vec::new();
    for item in items {
        let mut words = item.as_slice();
        while !words.is_empty() {
            let longest = (1..=words.len()).rev().find_map(|count| Some((count, find(&all, &words[..count])?)));
            let (count, profile) = longest.ok_or_else(|| unknown(&all, words))?;
            if found.iter().all(|earlier| earlier.id != profile.id) {
                found.push(profile);
            }
            words = &words[count..];
        }
    }
    Ok(found)
}

/// Returns the profile with this name.
///
/// # Errors
///
/// [`UnknownGpu`].
pub fn profile<'t>(table: &'t ProfileTable, name: &str) -> Result<&'t Profile, UnknownGpu> {
    let all: Vec<&Profile> = table.iter().collect();
    find(&all, &[name]).ok_or_else(|| unknown(&all, &[name]))
}

/// Finds the profile with this id, or the only one with this product name. Case and separators do not matter.
pub fn find<'p>(profiles: &[&'p Profile], words: &[&str]) -> Option<&'p Profile> {
    let words = bare(&words.concat());
    let wanted = Some(without_maker(&words)).filter(|wanted| !wanted.is_empty())?;
    let has_name = |profile: &&Profile| profile.names.iter().any(|name| without_maker(&bare(name)) == wanted);
    let mut of_product = profiles.iter().copied().filter(has_name);
    let product = of_product.next().filter(|_| of_product.next().is_none());
    profiles.iter().copied().find(|profile| bare(profile.id.as_str()) == wanted).or(product)
}

/// Beginnings of names of GPUs by other makers than NVIDIA.
const OTHERS: &str = "amd radeon instinct gfx mi1 mi2 mi3 rx4 rx5 rx6 rx7 rx9 intel gaudi arca arcb apple";

/// Formats `; did you mean …?` for a name, also for a number without its series, else the reason why a GPU has no
/// profile, if its name shows the reason.
pub fn suggest(known: &ProfileNames, words: &[&str]) -> Option<String> {
    let number = words.last().map(|word| bare(word)).filter(|number| number.len() >= MIN_NUMBER_LENGTH);
    let series = number.iter().flat_map(|number| ["rtx", "gtx"].map(|series| format!("{series}{number}")));
    let near = core::iter::once(words.join("-")).chain(series).find_map(|name| known.suggest(&name));
    let is_other = OTHERS.split(' ').any(|begin| bare(&words.concat()).starts_with(begin));
    near.or_else(|| is_other.then(|| "; it is no NVIDIA GPU: plans are for CUDA or the CPU".to_owned()))
}

/// The error of words without a profile, up to a word that has one.
fn unknown(profiles: &[&Profile], words: &[&str]) -> UnknownGpu {
    let is_known = |word: &&str| find(profiles, &[word]).is_some();
    let count = words.iter().position(is_known).unwrap_or(words.len());
    let words = &words[..count.max(1)];
    let known = ProfileNames::new(&profiles.iter().copied().cloned().collect::<Vec<_>>());
    let name = words.join(" ");
    let hint = suggest(&known, words).or_else(|| with_same_begin(profiles, &bare(&name)));
    UnknownGpu { hint: hint.unwrap_or_else(|| known.suggest_or_advise(&name)), name }
}

/// Formats the names that share the longest begin with a name, of at least four letters and digits.
fn with_same_begin(profiles: &[&Profile], name: &str) -> Option<String> {
    let beginning = |begin: &str| -> Vec<&str> {
        let ids = profiles.iter().map(|profile| profile.id.as_str());
        ids.filter(|id| bare(id).starts_with(begin)).take(MAX_LISTED).collect()
    };
    let ids = (MIN_NUMBER_LENGTH..name.len()).rev().map(|end| beginning(&name[..end])).find(|ids| !ids.is_empty())?;
    Some(format!("; near names are {}", ids.join(", ")))
}

/// Letters and digits of a name, in small letters.
pub fn bare(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn without_maker(name: &str) -> &str {
    ["nvidia", "geforce"].into_iter().fold(name, |name, maker| name.strip_prefix(maker).unwrap_or(name))
}
