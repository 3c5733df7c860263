//! Names of GPUs in any spelling.

#[cfg(test)]
mod tests;

use gpu_tuned_core::device::{DeviceFacts, MigSize, begins_like, unbranded};
use gpu_tuned_core::profile::{Profile, ProfileNames, ProfileTable, did_you_mean, names_left_out, refuse};
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

/// Maximum number of words of a name, such as `NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition`. A list of GPUs has more.
const MOST_WORDS: usize = 12;

/// Numbers of words that the first name of a list can have, the largest first.
fn counts(words: &[&str]) -> impl Iterator<Item = usize> + use<> {
    (1..=words.len().min(MOST_WORDS)).rev()
}

/// Minimum length of a number that can mean a GPU without its series.
const MIN_NUMBER_LENGTH: usize = 4;

/// Maximum number of near names in an error.
const MAX_LISTED: usize = 6;

/// A named GPU, or a slice of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedGpu<'t> {
    /// The GPU.
    pub profile: &'t Profile,
    /// MIG slice of the GPU.
    pub slice: Option<MigSize>,
}

/// Returns the named GPUs, each once. Each item has the words of one or several names, as in `RTX 4090 H200`. A name without
/// the size of the memory or the form of the board stands for all of them: `A100 40GB`. `a100-sxm4-40gb 1g.5gb` is a MIG slice.
///
/// # Errors
///
/// [`UnknownGpu`].
pub fn gpus<'t>(table: &'t ProfileTable, items: &[Vec<&str>]) -> Result<Vec<NamedGpu<'t>>, UnknownGpu> {
    let all: Vec<&Profile> = table.iter().collect();
    let mut found: Vec<NamedGpu<'_>> = Vec::new();
    for item in items {
        let words: Vec<&str> = item.iter().flat_map(|word| without_slice(word)).collect();
        let mut words = words.as_slice();
        while !words.is_empty() {
            let longest = counts(words).find_map(|count| Some((count, named(&all, &words[..count])?)));
            let (count, profiles) = longest.ok_or_else(|| unknown(&all, words))?;
            let name = &words[..count];
            words = &words[count..];
            let is_mig = |word: &&str| word.eq_ignore_ascii_case("mig");
            let rest = if words.first().is_some_and(is_mig) { &words[1..] } else { words };
            let slice = rest.first().and_then(|word| size_of_slice(word));
            if slice.is_some() {
                words = &rest[1..];
            }
            let has_slice =
                |profile: &&Profile| slice.is_none_or(|it| DeviceFacts::nominal_slice(profile, it).is_some());
            let gpus: Vec<_> =
                profiles.into_iter().filter(has_slice).map(|profile| NamedGpu { profile, slice }).collect();
            if let (Some(size), []) = (slice, gpus.as_slice()) {
                let hint = format!("; {} has no such MIG slice: see `nvidia-smi mig -lgip`", name.join(" "));
                return Err(UnknownGpu { name: size.to_string(), hint });
            }
            for gpu in gpus {
                if !found.contains(&gpu) {
                    found.push(gpu);
                }
            }
        }
    }
    Ok(found)
}

/// Returns the named profiles, each once, of which each name has one.
///
/// # Errors
///
/// [`UnknownGpu`], also for a name that several profiles have.
pub fn profiles<'t>(table: &'t ProfileTable, items: &[Vec<&str>]) -> Result<Vec<&'t Profile>, UnknownGpu> {
    let mut found: Vec<&Profile> = Vec::new();
    for item in items {
        let all: Vec<&Profile> = table.iter().collect();
        let mut words = item.as_slice();
        while !words.is_empty() {
            let longest = counts(words).find_map(|count| Some((count, find(&all, &words[..count])?)));
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
    let words: Vec<&str> = name.split_whitespace().collect();
    find(&all, &words).ok_or_else(|| unknown(&all, &words))
}

/// Finds the only profile with this id, product name, or name of a system or cloud machine. Case and separators do not matter,
/// nor does what the name leaves out, if it tells the GPU from all others.
pub fn find<'p>(profiles: &[&'p Profile], words: &[&str]) -> Option<&'p Profile> {
    named(profiles, words).filter(|found| found.len() == 1)?.first().copied()
}

/// Profiles with this name, at least one; several where a size of memory or the form of the board is left out.
fn named<'p>(profiles: &[&'p Profile], words: &[&str]) -> Option<Vec<&'p Profile>> {
    let text = unbranded(&words.concat()).replace("mobile", "laptop");
    if text.is_empty() {
        return None;
    }
    let of = |is_meant: &dyn Fn(&Profile) -> bool| -> Vec<&'p Profile> {
        profiles.iter().copied().filter(|profile| is_meant(profile)).collect()
    };
    let spelled = words.join("-").to_ascii_lowercase().replace('_', "-");
    // More words are names of other GPUs.
    let is_named = |name: &str| words.len() <= name.split('-').count() && begins_like(&spelled, name);
    let system = SYSTEMS.iter().find(|(name, _)| is_named(name)).map(|(_, id)| *id);
    let by_id = of(&|profile| unbranded(profile.id.as_str()) == text || Some(profile.id.as_str()) == system);
    if !by_id.is_empty() {
        return Some(by_id);
    }
    let by_product = of(&|profile| profile.names.iter().any(|name| unbranded(name) == text));
    if by_product.len() == 1 {
        return Some(by_product);
    }
    let is_shorter = |profile: &Profile| {
        let size = format!("{}gb", profile.memory.nominal_mib / 1024);
        // The only product of its name has no form in the name.
        let is_form = |word: &str| word.starts_with("sxm") || ["pcie", "nvl"].contains(&word);
        let form = match profile.board.nvlink_gb_s {
            _ if profile.id.as_str().split('-').any(is_form) => "gpu",
            Some(rate) if rate > 0.0 => "sxm",
            _ => "pcie",
        };
        let more = [size.as_str(), form, "gpu"];
        let names = profile.names.iter().map(String::as_str).chain([profile.id.as_str()]);
        !profile.modified && names.into_iter().any(|name| names_left_out(&text, name, &more) == Some(0))
    };
    Some(of(&is_shorter)).filter(|found| !found.is_empty())
}

/// Computers and machines of clouds with one kind of GPU, by the beginnings of their names; `#` is a digit. Sources: the makers'
/// and the clouds' lists of machine types.
const SYSTEMS: [(&str, &str); 44] = [
    ("dgx-spark", "gb10"),
    ("project-digits", "gb10"),
    ("ascent-gx10", "gb10"),
    ("dgx-station-gb300", "gb300"),
    ("dgx-h100", "h100-sxm5-80gb"),
    ("dgx-h200", "h200"),
    ("dgx-b200", "b200"),
    ("p2.", "k80"),
    ("p3.", "v100-sxm2-16gb"),
    ("p3dn.", "v100-sxm2-32gb"),
    ("p4d.", "a100-sxm4-40gb"),
    ("p4de.", "a100-sxm4-80gb"),
    ("p5.", "h100-sxm5-80gb"),
    ("p5e.", "h200"),
    ("p5en.", "h200"),
    ("p6-b200.", "b200"),
    ("p6-b300.", "b300-sxm6"),
    ("g4dn.", "t4"),
    ("g5.", "a10g"),
    ("g5g.", "t4g"),
    ("g6.", "l4"),
    ("g6e.", "l40s"),
    ("a2-highgpu", "a100-sxm4-40gb"),
    ("a2-megagpu", "a100-sxm4-40gb"),
    ("a2-ultragpu", "a100-sxm4-80gb"),
    ("a3-highgpu", "h100-sxm5-80gb"),
    ("a3-megagpu", "h100-sxm5-80gb"),
    ("a3-edgegpu", "h100-sxm5-80gb"),
    ("a3-ultragpu", "h200"),
    ("a4-highgpu", "b200"),
    ("g2-standard", "l4"),
    ("nvidia-h100-mega-80gb", "h100-sxm5-80gb"),
    ("standard-nc##ads-a100", "a100-pcie-80gb"),
    ("standard-nd##asr", "a100-sxm4-40gb"),
    ("standard-nd##amsr-a100", "a100-sxm4-80gb"),
    ("standard-nd##isr-h100", "h100-sxm5-80gb"),
    ("standard-nd##isr-h200", "h200"),
    ("standard-nc##ads-h100", "h100-nvl"),
    ("standard-nc##adis-h100", "h100-nvl"),
    ("standard-nc#as-t4", "t4"),
    ("standard-nc##as-t4", "t4"),
    ("standard-nc#s-v3", "v100-pcie-16gb"),
    ("standard-nc##s-v3", "v100-pcie-16gb"),
    ("standard-nd##rs-v2", "v100-sxm2-32gb"),
];

/// Splits the size of a MIG slice from a word: `a100-sxm4-40gb:1g.5gb`.
fn without_slice(word: &str) -> impl Iterator<Item = &str> {
    let gpu = MigSize::split_from(word).map(|(gpu, _)| gpu);
    let parts =
        gpu.map_or([word, ""], |gpu| [gpu, word[gpu.len()..].trim_start_matches(|c: char| !c.is_ascii_digit())]);
    parts.into_iter().filter(|part| !part.is_empty())
}

fn size_of_slice(word: &str) -> Option<MigSize> {
    MigSize::split_from(word).filter(|(gpu, _)| gpu.is_empty()).map(|(_, size)| size)
}

/// Formats `; did you mean …?` for a name, also for a number without its series, else the reason why a GPU has no
/// profile, if its name shows the reason.
pub fn suggest(known: &ProfileNames, words: &[&str]) -> Option<String> {
    let number = words.last().map(|word| bare(word)).filter(|number| number.len() >= MIN_NUMBER_LENGTH);
    let series = number.iter().flat_map(|number| ["rtx", "gtx"].map(|series| format!("{series}{number}")));
    let near = core::iter::once(words.join("-")).chain(series).find_map(|name| known.suggest(&name));
    near.or_else(|| refuse(&words.concat()))
}

/// The error of words without a profile, up to a word that has one.
fn unknown(profiles: &[&Profile], words: &[&str]) -> UnknownGpu {
    let is_known = |word: &&str| named(profiles, &[word]).is_some();
    let several = counts(words).find(|count| named(profiles, &words[..*count]).is_some());
    let count = several.or_else(|| words.iter().position(is_known)).unwrap_or(words.len());
    let words = &words[..count];
    let known = ProfileNames::new(&profiles.iter().copied().cloned().collect::<Vec<_>>());
    let name = words.join(" ");
    let several =
        named(profiles, words).and_then(|found| did_you_mean(found.iter().map(|profile| profile.id.as_str())));
    let here = || "; the GPU of this machine is `--here`, and a build has it with feature `native`".to_owned();
    let several = several.or_else(|| name.eq_ignore_ascii_case("native").then(here));
    let hint = several.or_else(|| suggest(&known, words)).or_else(|| with_same_begin(profiles, &bare(&name)));
    UnknownGpu { hint: hint.unwrap_or_else(|| known.suggest_or_advise(&name)), name }
}

/// Formats the names that share the longest begin with a name, of at least four letters and digits.
fn with_same_begin(profiles: &[&Profile], name: &str) -> Option<String> {
    let beginning = |begin: &str| -> Vec<&str> {
        let ids = profiles.iter().map(|profile| profile.id.as_str());
        ids.filter(|id| bare(id).starts_with(begin)).take(MAX_LISTED).collect()
    };
    let longest = profiles.iter().map(|profile| profile.id.as_str().len()).max()?;
    let ends = (MIN_NUMBER_LENGTH..name.len().min(longest + 1)).rev();
    let ids = ends.map(|end| beginning(&name[..end])).find(|ids| !ids.is_empty())?;
    Some(format!("; near names are {}", ids.join(", ")))
}

/// Letters and digits of a name, in small letters.
pub fn bare(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}
