//! Offences of one block, and sums over many.

use std::ops::AddAssign;

use super::blocks::Block;

/// First words of documentation that announce a subject without naming it.
const VAGUE: [&str; 19] = [
    "what", "whether", "how", "where", "which", "whose", "who", "of", "so", "that", "those", "these", "it", "its",
    "one", "such", "thus", "beside", "between",
];
/// Verbs of people that comments use for code and data.
const PERSONAL: [&str; 18] = [
    "tell", "tells", "told", "telling", "say", "says", "said", "know", "knows", "known", "knew", "hold", "holds",
    "held", "stand", "stands", "stood", "speaks",
];
/// Words of the longest sentence that is read once.
const LONGEST: usize = 30;

/// Numbers of blocks and sentences, and of those that offend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Blocks of documentation, and those that open with a vague word.
    pub(super) documentation: usize,
    pub(super) openers: usize,
    /// All blocks, and those that personify code or data.
    pub(super) blocks: usize,
    pub(super) personify: usize,
    /// Sentences, and those of more than 30 words.
    pub(super) sentences: usize,
    pub(super) long: usize,
}

impl Counts {
    /// Returns the counts of one block. Fewer than three words are no sentence and count for nothing.
    pub(super) fn from_block(block: &Block) -> Self {
        let text = plain(&block.text);
        let words: Vec<String> = text.split_whitespace().map(bare).collect();
        if words.len() < 3 {
            return Self::default();
        }
        let sentences: Vec<usize> = sentences(&text).into_iter().filter(|words| *words > 2).collect();
        Self {
            documentation: block.is_documentation.into(),
            openers: (block.is_documentation && VAGUE.contains(&&*words[0])).into(),
            blocks: 1,
            personify: words.iter().any(|word| PERSONAL.contains(&&**word)).into(),
            sentences: sentences.len(),
            long: sentences.iter().filter(|words| **words > LONGEST).count(),
        }
    }

    /// Offences of all three kinds.
    pub(super) fn offences(&self) -> usize {
        self.openers + self.personify + self.long
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.documentation += other.documentation;
        self.openers += other.openers;
        self.blocks += other.blocks;
        self.personify += other.personify;
        self.sentences += other.sentences;
        self.long += other.long;
    }
}

/// Replaces code by one word, and links by their text.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for (index, part) in text.split('`').enumerate() {
        plain.push_str(if index % 2 == 1 { "code" } else { part });
    }
    let mut text = String::new();
    let mut rest = plain.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.replace(['[', ']', '*', '_', '>'], " ")
}

/// The word in lower case, without punctuation.
fn bare(word: &str) -> String {
    word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase()
}

/// Numbers of words of the sentences: a sentence ends before a word with a capital letter.
fn sentences(text: &str) -> Vec<usize> {
    let mut lengths = vec![0];
    let mut is_ended = false;
    for word in text.split_whitespace() {
        if is_ended && word.starts_with(char::is_uppercase) {
            lengths.push(0);
        }
        if let Some(length) = lengths.last_mut() {
            *length += 1;
        }
        is_ended = word.trim_end_matches(['"', ')', '\'']).ends_with(['.', '!', '?']);
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Counts {
        Counts::from_block(&Block { line: 1, is_documentation: true, text: text.to_owned() })
    }

    #[test]
    fn vague_openings_are_counted_in_documentation_only() {
        assert_eq!(counts("What the pool has reserved.").openers, 1);
        assert_eq!(counts("Bytes that the pool has reserved, of all.").openers, 0);
        let comment = Block { line: 1, is_documentation: false, text: "What it was before.".to_owned() };
        assert_eq!((Counts::from_block(&comment).openers, Counts::from_block(&comment).blocks), (0, 1));
    }

    #[test]
    fn personal_verbs_are_counted_once_a_block_and_never_in_code() {
        assert_eq!(counts("The lock knows and says it.").personify, 1);
        assert_eq!(counts("A call of `told` returns the *report*.").personify, 0);
        assert_eq!(counts("See [the holder](https://example.com/what/it/says) of bytes.").personify, 0);
    }

    #[test]
    fn a_sentence_is_long_from_31_words_on() {
        let of = |words: usize| counts(&format!("{}.", vec!["word"; words].join(" ")));
        assert_eq!((of(30).long, of(31).long, of(31).sentences), (0, 1, 1));
        let two = format!("{0}. A{0}.", " word".repeat(20));
        assert_eq!((counts(&two).sentences, counts(&two).long), (2, 0));
    }

    #[test]
    fn two_words_are_no_sentence() {
        assert_eq!(counts("It holds."), Counts::default());
    }
}
