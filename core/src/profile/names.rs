use std::collections::BTreeSet;

use super::{Profile, ProfileId, ProfileTable};
use crate::suggest;

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

    /// Formats `; did you mean …?` for a name without a profile. Suggests another spelling, the memory sizes or
    /// else the versions of that GPU, or the nearest name; empty if none is near.
    pub fn hint(&self, name: &str) -> String {
        let wanted = bare(name);
        let same = |id: &&str| bare(id) == wanted;
        if let Some(id) = self.names().find(same) {
            return format!("; did you mean `{id}`?");
        }
        let is_memory = |suffix: &str| suffix.strip_suffix("gb").is_some_and(|size| size.parse::<u32>().is_ok());
        let is_size =
            |id: &&str| id.rsplit_once('-').is_some_and(|(model, suffix)| is_memory(suffix) && bare(model) == wanted);
        let is_version = |id: &&str| id.split_once('-').is_some_and(|(model, _)| model == wanted);
        let quoted = |id: &str| format!("`{id}`");
        let mut versions: Vec<String> = self.names().filter(is_size).map(quoted).collect();
        if versions.is_empty() {
            versions = self.names().filter(is_version).map(quoted).collect();
        }
        match versions.split_last() {
            None => suggest(name, self.names()),
            Some((only, [])) => format!("; did you mean {only}?"),
            Some((last, others)) => format!("; did you mean {} or {last}?", others.join(", ")),
        }
    }

    /// Returns true if a name differs from a profile's only in case, hyphens and underscores, or by a typing error.
    pub fn is_near(&self, name: &str) -> bool {
        let wanted = bare(name);
        // A slip in a short name is another word: `t5` is not `t4`.
        let slip = wanted.len() >= 6 && !suggest(&wanted, self.names()).is_empty();
        slip || self.names().any(|id| bare(id) == wanted)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.ids.iter().map(ProfileId::as_str)
    }
}

fn bare(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::ProfileNames;

    #[test]
    fn hints_cover_spellings_versions_and_typing_errors() {
        let known = ProfileNames::new(&[]);
        for (name, hint) in [
            ("RTX-4090", "; did you mean `rtx4090`?"),
            ("rtx_a6000", "; did you mean `rtx-a6000`?"),
            ("rtx3080", "; did you mean `rtx3080-10gb` or `rtx3080-12gb`?"),
            ("rtx4060ti", "; did you mean `rtx4060-ti-16gb` or `rtx4060-ti-8gb`?"),
            (
                "v100",
                "; did you mean `v100-pcie-16gb`, `v100-pcie-32gb`, `v100-sxm2-16gb`, `v100-sxm2-32gb` or `v100-sxm3-32gb`?",
            ),
            ("rtx4900", "; did you mean `rtx4090`?"),
            ("voodoo2", ""),
        ] {
            assert_eq!(known.hint(name), hint, "{name}");
        }
    }
}
