//! Reads the text, splits off a validation part, and encodes both as numbers.

use std::{collections::BTreeSet, fs, io::Read, path::Path};

use anyhow::{Context, anyhow};
use flate2::{Crc, read::GzDecoder};
use serde::{Deserialize, Serialize};

const AUSTEN_GZ: &[u8] = include_bytes!("../data/austen.txt.gz");
const VALIDATION_SHARE: usize = 10;

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
    /// If the text is damaged.
    pub fn austen() -> anyhow::Result<Self> {
        let mut text = String::new();
        GzDecoder::new(AUSTEN_GZ).read_to_string(&mut text).context("the text in this program is damaged")?;
        Ok(Self::new(&text))
    }

    /// Reads a UTF-8 file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not UTF-8.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let bytes = fs::read(path).with_context(|| format!("cannot read the text {name}"))?;
        let text = str::from_utf8(&bytes).map_err(|error| {
            let byte = error.valid_up_to();
            anyhow!("{name} is not UTF-8 at byte {byte}; convert the file, for example with iconv")
        })?;
        Ok(Self::new(text))
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
