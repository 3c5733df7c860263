//! Search of profiles.

use gpu_tuned_core::profile::Profile;
use gpu_tuned_project::gpu_names::{bare, find, suggest};

use super::catalogue::{Catalogue, Entry};
use super::{FilterArgs, TargetsArgs};

pub(super) struct Search<'a> {
    filter: &'a FilterArgs,
    words: Vec<&'a str>,
}

pub(super) struct Found<'a, 'e> {
    pub entries: Vec<&'a Entry<'e>>,
    /// True if the words are the name of the only entry.
    pub exact: bool,
}

const MAX_LISTED: usize = 6;

impl<'a> Search<'a> {
    pub(super) fn new(args: &'a TargetsArgs) -> Self {
        Self { filter: &args.filter, words: args.words.iter().flat_map(|word| word.split_whitespace()).collect() }
    }

    /// The entry with this name, else all that match every word.
    pub(super) fn among<'s, 'e>(&self, entries: &'s [Entry<'e>]) -> Found<'s, 'e> {
        let (entries, exact) = match self.named(entries) {
            Some(entry) => (vec![entry], true),
            None => (self.matching(entries), false),
        };
        Found { entries: entries.into_iter().filter(|entry| self.passes(entry)).collect(), exact }
    }

    /// The entry with this id, or the only one with this product name.
    fn named<'s, 'e>(&self, entries: &'s [Entry<'e>]) -> Option<&'s Entry<'e>> {
        let profile = find(&entries.iter().map(|entry| entry.profile).collect::<Vec<_>>(), &self.words)?;
        entries.iter().find(|entry| entry.profile.id == profile.id)
    }

    fn matching<'s, 'e>(&self, entries: &'s [Entry<'e>]) -> Vec<&'s Entry<'e>> {
        let has_all = |entry: &&Entry| self.words.iter().all(|word| has(entry.profile, word));
        entries.iter().filter(|entry| !entry.is_generic()).filter(has_all).collect()
    }

    fn passes(&self, entry: &Entry) -> bool {
        let (filter, profile) = (self.filter, entry.profile);
        let memory_gib = profile.memory.nominal_mib as f64 / 1024.0;
        let capability = profile.compute_capability;
        filter.min_memory.is_none_or(|least| memory_gib >= least)
            && filter.compute_capability.is_none_or(|wanted| capability == wanted)
            && (!filter.bf16 || capability.has_tensor_bf16())
            && (!filter.project || entry.declared)
    }

    /// A note on further profiles that match the words.
    pub(super) fn others(&self, entries: &[Entry], shown: &[&Entry]) -> Option<String> {
        let is_shown = |entry: &&Entry| shown.iter().any(|shown| shown.target == entry.target);
        let others: Vec<_> = self.matching(entries).into_iter().filter(|entry| !is_shown(entry)).collect();
        let found = format!("also with `{}`: {}", self.words.join(" "), names(&others));
        (!others.is_empty()).then_some(found)
    }

    /// A note that nothing matches, with the nearest names.
    pub(super) fn no_match(&self, catalogue: &Catalogue, entries: &[Entry]) -> String {
        let of_project = catalogue.project.as_ref().filter(|_| self.filter.project);
        if let Some(project) = of_project.filter(|_| !entries.iter().any(|entry| entry.declared)) {
            return format!("`{}` declares no GPU; declare one in Cargo.toml: [features] h200 = []", project.name());
        }
        let unfiltered = self.named(entries).map_or_else(|| self.matching(entries), |entry| vec![entry]);
        let words = self.words.join(" ");
        match (words.as_str(), unfiltered.as_slice()) {
            ("", _) => "no profile passes the filters".to_owned(),
            (_, []) => format!("no profile matches `{words}`{}", self.hint(catalogue)),
            (_, found) => {
                format!("no profile matches `{words}` and passes the filters; without them: {}", names(found))
            }
        }
    }

    /// The likely name, else the way to a profile.
    fn hint(&self, catalogue: &Catalogue) -> String {
        let known = catalogue.known();
        suggest(&known, &self.words).unwrap_or_else(|| known.suggest_or_advise(&self.words.join("-")))
    }
}

/// Returns true if a word is part of a name of the GPU, begins the name of its architecture, chip or memory, or is a PCI id.
fn has(profile: &Profile, word: &str) -> bool {
    let wanted = bare(word);
    let mut names = profile.names.iter().map(String::as_str).chain([profile.id.as_str()]);
    let mut kinds =
        [Some(&profile.architecture), profile.chip.as_ref(), profile.memory.kind.as_ref()].into_iter().flatten();
    let is_said = names.any(|name| bare(name).contains(&wanted))
        || kinds.any(|kind| bare(kind).starts_with(&wanted))
        || profile.pci_ids.iter().any(|id| id.to_string().eq_ignore_ascii_case(word));
    !wanted.is_empty() && is_said
}

fn names(entries: &[&Entry]) -> String {
    let named: Vec<_> = entries.iter().take(MAX_LISTED).map(|entry| entry.target).collect();
    let more = entries.len() - named.len();
    named.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}
