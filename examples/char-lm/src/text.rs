//! The text: read, split into a part to learn from and a held-out part, and turned into numbers.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use flate2::{Crc, read::GzDecoder};
use serde::{Deserialize, Serialize};

const AUSTEN_GZ: &[u8] = include_bytes!("../data/austen.txt.gz");
const HELD_OUT_SHARE: usize = 10;

/// Why a text cannot be learned from.
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
        /// Why.
        source: io::Error,
    },
    /// The file is not UTF-8.
    #[error("{} is not UTF-8: byte {byte_offset} begins no character; convert the file, for example with iconv", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Bytes before the first that is no UTF-8.
        byte_offset: usize,
    },
    /// There are fewer characters than one optimizer step or one evaluation takes.
    #[error("the {part} has {characters} characters and needs {needed}; take a longer text or shorter windows")]
    TooShort {
        /// Which part of the text.
        part: &'static str,
        /// Characters in it.
        characters: usize,
        /// Characters that would do.
        needed: usize,
    },
}

/// What tells two texts apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Size in UTF-8.
    pub bytes: usize,
    /// CRC-32 of the bytes.
    pub crc32: u32,
}

/// The characters that a network tells apart: those of the text it learns from, and one for all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Vocabulary {
    characters: Vec<char>,
}

impl Vocabulary {
    /// The distinct characters of a text, sorted.
    pub fn of(text: &[char]) -> Self {
        let distinct: BTreeSet<char> = text.iter().copied().collect();
        Self { characters: distinct.into_iter().collect() }
    }

    /// Characters, the unknown one included.
    pub fn size(&self) -> usize {
        self.characters.len() + 1
    }

    /// The number of a character; all that are not in the vocabulary share the last one.
    pub fn id(&self, character: char) -> u32 {
        self.characters.binary_search(&character).unwrap_or(self.characters.len()) as u32
    }

    /// The character of a number, `\u{fffd}` for the unknown one.
    pub fn character(&self, id: usize) -> char {
        self.characters.get(id).copied().unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

/// A text as numbers.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// The first nine tenths, to learn from.
    pub train: Vec<u32>,
    /// The last tenth, to measure perplexity on.
    pub held_out: Vec<u32>,
    /// The characters of the part to learn from.
    pub vocabulary: Vocabulary,
    /// Of the whole text.
    pub fingerprint: Fingerprint,
}

impl Corpus {
    /// Takes the text that is part of this program: two novels by Jane Austen, 1.36 million characters.
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
    /// When the file cannot be read, or is not UTF-8.
    pub fn read(path: &Path) -> Result<Self, TextError> {
        let bytes = fs::read(path).map_err(|source| TextError::Read { path: path.to_owned(), source })?;
        let text = String::from_utf8(bytes).map_err(|error| TextError::NotUtf8 {
            path: path.to_owned(),
            byte_offset: error.utf8_error().valid_up_to(),
        })?;
        Ok(Self::new(&text))
    }

    /// Splits a text and numbers its characters.
    pub fn new(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let (train, held_out) = characters.split_at(characters.len() - characters.len() / HELD_OUT_SHARE);
        let vocabulary = Vocabulary::of(train);
        let ids = |part: &[char]| part.iter().map(|&character| vocabulary.id(character)).collect();
        let mut crc = Crc::new();
        crc.update(text.as_bytes());
        Self {
            train: ids(train),
            held_out: ids(held_out),
            fingerprint: Fingerprint { bytes: text.len(), crc32: crc.sum() },
            vocabulary,
        }
    }
}
