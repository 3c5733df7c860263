//! Names of keys in one spelling, and words in them.

/// Normal name of a key: in lower case, with underscores between words.
pub(crate) fn normal(key: &str) -> String {
    let mut normal = String::with_capacity(key.len() + 4);
    let mut follows_small = false;
    for letter in key.chars() {
        if letter.is_uppercase() && follows_small {
            normal.push('_');
        }
        follows_small = letter.is_lowercase() || letter.is_ascii_digit();
        match letter {
            '-' | ' ' => normal.push('_'),
            _ => normal.extend(letter.to_lowercase()),
        }
    }
    normal
}

/// Returns true if a name contains a word; words of up to three letters only at the start of a part.
pub(crate) fn contains_word(name: &str, word: &str) -> bool {
    let has_start = |pair: &[u8]| pair.eq_ignore_ascii_case(&word.as_bytes()[..2]);
    if !name.as_bytes().windows(2).any(has_start) {
        return false;
    }
    let (name, word) = (name.to_ascii_lowercase(), word.replace('_', ""));
    let squashed: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    if word.len() > 3 {
        return squashed.contains(&word);
    }
    squashed.starts_with(&word)
        || name.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|part| part.starts_with(&word))
}

#[cfg(test)]
mod tests {
    use super::normal;

    #[test]
    fn spellings_of_a_name_have_one_normal_form() {
        for (key, name) in [
            ("batchSize", "batch_size"),
            ("batch-size", "batch_size"),
            ("BATCH_SIZE", "batch_size"),
            ("IMS_PER_BATCH", "ims_per_batch"),
            ("numGPUs", "num_gpus"),
            ("fp16", "fp16"),
        ] {
            assert_eq!(normal(key), name);
        }
    }
}
