//! Reads the text, splits off a validation part, and encodes both as numbers.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use flate2::{Crc, read::GzDecoder};
use serde::{Deserialize, Serialize};

const AUSTEN_GZ: &[u8] = include_bytes!("../data/austen.txt.gz");
const VALIDATION_SHARE: usize = 10;

/// Errors of reading a text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The text in this program is damaged.
    #[error("the text in this program is damaged")]
    Damaged(#[source] io::Error),
    /// The file cannot be read.
    #[error("cannot read the text {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not UTF-8.
    #[error("{} is not UTF-8 at byte {byte_offset}; convert the file, for example with iconv", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Offset of the first invalid byte.
        byte_offset: usize,
    },
    /// A part has fewer characters than one optimizer step or one evaluation needs.
    #[error("the {part} has {characters} characters but needs {needed}; use a longer text or shorter windows")]
    TooShort {
        /// Name of the part.
        part: &'static str,
        /// Characters in it.
        characters: usize,
        /// Characters needed.
        needed: usize,
    },
}

/// Size and checksum of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Size in UTF-8.
    pub bytes: usize,
    /// CRC-32 of the bytes.
    pub crc32: u32,
}

/// The characters of the training text, plus one for unknown characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Vocabulary {
    characters: Vec<char>,
}

impl Vocabulary {
    /// Collects the distinct characters of a text, sorted.
    pub fn from_text(text: &[char]) -> Self {
        let distinct: BTreeSet<char> = text.iter().copied().collect();
        Self { characters: distinct.into_iter().collect() }
    }

    /// Number of characters, with the unknown one.
    pub fn size(&self) -> usize {
        self.characters.len() + 1
    }

    /// Number of a character; unknown characters share the last number.
    pub fn id(&self, character: char) -> u32 {
        self.characters.binary_search(&character).unwrap_or(self.characters.len()) as u32
    }

    /// Character of a number; `\u{fffd}` for the unknown one.
    pub fn character(&self, id: usize) -> char {
        self.characters.get(id).copied().unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

/// An encoded text.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// The first nine tenths, for training.
    pub train: Vec<u32>,
    /// The last tenth, for perplexity.
    pub validation: Vec<u32>,
    /// The characters of the training part.
    pub vocabulary: Vocabulary,
    /// Fingerprint of the whole text.
    pub fingerprint: Fingerprint,
}

impl Corpus {
    /// Returns the text included in this program: two novels by Jane Austen, 1.36 million characters.
    ///
    /// # Errors
    ///
    /// [`TextError::Damaged`].
    pub fn austen() -> Result<Self, TextError> {
        let mut text = String::new();
        GzDecoder::new(AUSTEN_GZ).read_to_string(&mut text).map_err(TextError::Damaged)?;
        Ok(Self::new(&text))
    }

    /// Reads a UTF-8 file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not UTF-8.
    pub fn read(path: &Path) -> Result<Self, TextError> {
        let bytes = fs::read(path).map_err(|source| TextError::Read { path: path.to_owned(), source })?;
        let text = String::from_utf8(bytes).map_err(|error| TextError::NotUtf8 {
            path: path.to_owned(),
            byte_offset: error.utf8_error().valid_up_to(),
        })?;
        Ok(Self::new(&text))
    }

    /// Splits and encodes a text.
    pub fn new(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let (train, validation) = characters.split_at(characters.len() - characters.len() / VALIDATION_SHARE);
        let vocabulary = Vocabulary::from_text(train);
        let ids = |part: &[char]| part.iter().map(|&character| vocabulary.id(character)).collect();
        let mut crc = Crc::new();
        crc.update(text.as_bytes());
        Self {
            train: ids(train),
            validation: ids(validation),
            fingerprint: Fingerprint { bytes: text.len(), crc32: crc.sum() },
            vocabulary,
        }
    }
}
