use std::collections::BTreeSet;

use super::{Profile, ProfileId, ProfileTable, typo};

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

    /// Formats `; did you mean …?` for a name without a profile, else the way to a profile for a GPU outside the table.
    pub fn suggest_or_advise(&self, name: &str) -> String {
        self.suggest(name).unwrap_or_else(|| {
            "; gpu-tuned plans for NVIDIA GPUs: on a machine with this one, `cargo gpu-tuned targets --here --toml` prints its profile"
                .to_owned()
        })
    }

    /// Formats `; did you mean …?` with another spelling, the memory sizes or else the versions of that GPU, or the
    /// name that a typing error turns into this one. `None` for another GPU.
    pub fn suggest(&self, name: &str) -> Option<String> {
        let wanted = bare(name);
        let is_memory = |suffix: &str| suffix.strip_suffix("gb").is_some_and(|size| size.parse::<u32>().is_ok());
        let is_same = |id: &str| bare(id) == wanted;
        let is_size =
            |id: &str| id.rsplit_once('-').is_some_and(|(model, suffix)| is_memory(suffix) && bare(model) == wanted);
        let is_version = |id: &str| id.split_once('-').is_some_and(|(model, _)| model == wanted);
        let is_typo = |id: &str| typo::is_typo(name, id);
        let kinds: [&dyn Fn(&str) -> bool; 4] = [&is_same, &is_size, &is_version, &is_typo];
        let found = |is_meant: &&dyn Fn(&str) -> bool| {
            let ids: Vec<String> = self.names().filter(|id| is_meant(id)).map(|id| format!("`{id}`")).collect();
            (!ids.is_empty()).then_some(ids)
        };
        let ids = kinds.iter().find_map(found)?;
        let (last, others) = ids.split_last()?;
        let others = if others.is_empty() { String::new() } else { others.join(", ") + " or " };
        Some(format!("; did you mean {others}{last}?"))
    }

    /// Returns true if a name differs from a profile's only in case, hyphens and underscores, or by a typing error.
    pub fn is_similar(&self, name: &str) -> bool {
        let wanted = bare(name);
        self.names().any(|id| bare(id) == wanted || typo::is_typo(name, id))
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
    fn suggestions_cover_spellings_versions_and_typing_errors() {
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
            assert_eq!(known.suggest(name).unwrap_or_default(), hint, "{name}");
        }
        assert!(known.suggest_or_advise("voodoo2").contains("targets --here --toml"));
    }
}
