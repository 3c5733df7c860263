use core::borrow::Borrow;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

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
    /// [`ParseIdError`]: the text is no name of a feature, or the name has another meaning.
    pub fn of_user(text: &str) -> Result<Self, ParseIdError> {
        let id: Self = text.parse()?;
        match reserved(text) {
            Some(reason) => Err(ParseIdError::Reserved { name: id.0, reason }),
            None => Ok(id),
        }
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

/// A text that cannot name a profile.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ParseIdError {
    /// Other characters than those of a feature.
    #[error(
        "`{0}` is not a profile id: expected lower-case letters, digits and hyphens, beginning with a letter, such as \
         \"rtx4090\""
    )]
    Malformed(String),
    /// The name has another meaning.
    #[error("no profile may have the name `{name}`: {reason}; use another name, such as `my-{name}`")]
    Reserved {
        /// The name.
        name: String,
        /// Its meaning.
        reason: &'static str,
    },
}

impl FromStr for ProfileId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_valid =
            text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(allowed) && !text.ends_with('-');
        if !is_valid {
            return Err(ParseIdError::Malformed(text.to_owned()));
        }
        match reserved(text) {
            Some(reason) if text != Self::GENERIC => Err(ParseIdError::Reserved { name: text.to_owned(), reason }),
            _ => Ok(Self(text.to_owned())),
        }
    }
}

impl TryFrom<String> for ProfileId {
    type Error = ParseIdError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ProfileId> for String {
    fn from(id: ProfileId) -> Self {
        id.0
    }
}

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

#[cfg(test)]
mod tests {
    use super::ProfileId;

    #[test]
    fn takes_only_what_can_be_a_feature_of_a_gpu() {
        for good in ["rtx4090", "a100-sxm4-80gb", "t4"] {
            assert!(good.parse::<ProfileId>().is_ok(), "{good}");
        }
        for bad in ["", "RTX4090", "4090", "rtx 4090", "rtx_4090", "h200-", "native", "cuda", "default", "cpu", "all"] {
            assert!(bad.parse::<ProfileId>().is_err(), "{bad}");
            assert!(ProfileId::of_user(bad).is_err(), "{bad}");
        }
        assert!("generic".parse::<ProfileId>().is_ok() && ProfileId::of_user("generic").is_err());
    }
}
