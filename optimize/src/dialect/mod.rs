//! Dialects: the keys that programs of one ecosystem read, a table each in `dialects/`.

mod role;

use std::io;
use std::path::Path;
use std::sync::LazyLock;

use gpu_tuned_core::regular_file;
use gpu_tuned_core::source::{FileError, Source};
use serde::Deserialize;
use toml::Spanned;

use crate::error::OptimizeError;
use crate::key_names::normal;
use crate::names::Words;
pub use role::Role;
pub(crate) use role::{Key, Spelling};

/// The keys that programs of one ecosystem read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dialect {
    /// Name of the ecosystem.
    pub name: String,
    /// Address of the documentation.
    pub documentation: String,
    /// Sets of paths; a file with all of a set, and none with a `!` in front, is in the dialect.
    #[serde(default)]
    pub(crate) recognised: Vec<Words>,
    /// True if PyTorch trains.
    #[serde(default)]
    pub(crate) pytorch: bool,
    /// True if keys are added only on request, as a program may not read them.
    #[serde(default)]
    pub adds_on_request: bool,
    #[serde(rename = "key", default)]
    pub(crate) keys: Vec<Key>,
}

macro_rules! dialects {
    ($($name:literal)+) => { [$(include_str!(concat!("../dialects/", $name, ".toml"))),+] };
}

/// The shipped dialects, the most specific first; the last is that of any other config.
pub(crate) static DIALECTS: LazyLock<Vec<Dialect>> = LazyLock::new(|| {
    let all = dialects![
        "axolotl" "llama_factory" "torchtune" "litgpt" "ultralytics" "nemo" "nanotron" "olmo" "composer" "accelerate"
        "hugging_face" "gpt_neox" "deepspeed" "lightning" "slowfast" "pytorch_template" "openmmlab" "espnet" "keras"
        "nanogpt" "burn" "micro_batch" "plain"
    ];
    all.iter().map(|text| toml::from_str(text).unwrap_or_else(|error| panic!("BUG: {error} in {text}"))).collect()
});

/// Setting that a key with this normal name configures in hand-written configs, whatever table it is in.
pub fn role(name: &str) -> Option<Role> {
    known(&[name.to_owned()]).map(|key| key.role)
}

/// Looks up the key of hand-written configs at the end of a path of normal names.
pub(crate) fn known(path: &[String]) -> Option<&'static Key> {
    Dialect::plain().keys.iter().find(|key| key.names.iter().any(|name| ends(path, name)))
}

/// Returns true if a path ends in these names.
pub(crate) fn ends(path: &[String], names: &str) -> bool {
    let count = || names.split('.').filter(|name| !name.is_empty()).count();
    let fits = || if names.starts_with('.') { path.len() == count() } else { path.len() >= count() };
    // Most paths differ in the last name.
    names.rsplit('.').zip(path.iter().rev()).all(|(name, own)| name == own) && fits()
}

impl Dialect {
    /// The dialects of the user, `[[dialect]]` in a `gpu-tuned.toml`; none without the file. They stay in memory until the
    /// program ends.
    ///
    /// # Errors
    ///
    /// A file that cannot be read; mistakes of the tables, with their place.
    pub fn read_user(path: &Path) -> Result<Vec<&'static Self>, OptimizeError> {
        #[derive(Deserialize)]
        struct File {
            #[serde(default)]
            dialect: Vec<Spanned<Dialect>>,
        }
        let text = match regular_file::read_text(path, regular_file::LARGEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(|source| OptimizeError::Read { path: path.to_owned(), source })?,
        };
        let name = path.display().to_string();
        let source = Source { file: &name, text: &text };
        let refuse = |mistake: FileError| OptimizeError::Mistakes(vec![(mistake, text.as_str().into())]);
        let file: File = toml::from_str(&text).map_err(|error| refuse(source.toml_error(&error)))?;
        let mistake = |one: &Spanned<Self>| Some(source.error(&one.span(), one.get_ref().mistake()?));
        if let Some(mistake) = file.dialect.iter().find_map(mistake) {
            return Err(refuse(mistake));
        }
        Ok(file.dialect.into_iter().map(|one| &*Box::leak(Box::new(one.into_inner()))).collect())
    }

    /// A word or name that no file can match.
    fn mistake(&self) -> Option<String> {
        let names =
            self.keys.iter().flat_map(|key| key.names.iter()).chain(self.recognised.iter().flat_map(Words::iter));
        let mut wrong = names.filter(|name| normal(name) != **name);
        if let Some(name) = wrong.next() {
            return Some(format!("`{name}` has to be in lower case with underscores: {}", normal(name)));
        }
        if self.recognised.is_empty() && !self.is_plain() {
            return Some("`recognised` is empty: give the paths that only such files have".to_owned());
        }
        self.keys.iter().find_map(Key::mistake)
    }

    pub(crate) fn plain() -> &'static Self {
        DIALECTS.last().expect("BUG: there is a dialect")
    }

    /// Returns true for hand-written configs of no ecosystem.
    pub fn is_plain(&self) -> bool {
        core::ptr::eq(self, Self::plain())
    }

    /// Own keys of a role.
    pub(crate) fn rows(&self, role: Role) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(move |key| key.role == role)
    }

    /// Meaning of a setting without its key.
    pub(crate) fn default_of(&self, role: Role, dim: &str) -> Option<&str> {
        self.rows(role).filter(|row| row.dim == dim).find_map(|row| row.default.as_deref())
    }

    /// The path that is added for a role.
    pub(crate) fn addition(&self, role: Role) -> Option<&str> {
        self.rows(role).find_map(|key| key.add.as_deref())
    }

    /// First names of the keys of a role.
    pub(crate) fn usual(&self, role: Role) -> String {
        let names: Vec<_> = self.rows(role).flat_map(|key| key.names.iter()).take(3).collect();
        names.join(", ").replace(" .", " ").trim_start_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{DIALECTS, Role, ends, known};

    #[test]
    fn every_dialect_is_documented_and_without_mistakes() {
        for dialect in DIALECTS.iter() {
            assert_eq!(dialect.mistake(), None, "{}", dialect.name);
            assert!(dialect.documentation.starts_with("https://"), "{}", dialect.name);
            let names: Vec<_> = dialect.keys.iter().flat_map(|key| key.names.iter()).collect();
            for (index, name) in names.iter().enumerate() {
                assert!(!names[..index].contains(name), "{}: {name} is there twice", dialect.name);
            }
        }
    }

    #[test]
    fn the_documentation_lists_every_ecosystem() {
        let page = include_str!("../../../docs/optimize.md");
        let table = page.split("| ecosystem |").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a table");
        let all = DIALECTS.iter().filter(|dialect| !dialect.adds_on_request || dialect.name == "Burn");
        for dialect in all {
            assert!(table.contains(&dialect.name), "{}", dialect.name);
        }
    }

    #[test]
    fn dotted_names_match_the_end_of_a_path() {
        let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(known(&path(&["deepspeed", "fp16", "enabled"])).map(|key| key.role), Some(Role::Precision));
        assert!(known(&path(&["logger", "enabled"])).is_none());
        assert_eq!(known(&path(&["train", "batch_size"])).map(|key| key.role), Some(Role::Batch));
        assert!(ends(&path(&["batch"]), ".batch") && !ends(&path(&["train", "batch"]), ".batch"));
    }
}
