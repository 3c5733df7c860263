//! Typing errors in names of profiles, apart from names of other GPUs.

/// Returns true if `name` is likely `id` with a typing error.
///
/// Every digit and every short group of letters distinguishes GPUs: an `rtx5065` is no `rtx5060`, an `l40g` no `l40s`. Within
/// a group, exchanged characters are a typing error: `rtx4900`. Within a group of three letters or more, a wrong, a missing or
/// an extra letter is one, too: `rtz4090`.
pub(super) fn is_typo(name: &str, id: &str) -> bool {
    let (name, id) = (groups(name), groups(id));
    name.len() == id.len() && name.iter().zip(&id).all(|(group, meant)| is_slip(group, meant))
}

fn is_slip(group: &str, meant: &str) -> bool {
    const MIN_LETTERS: usize = 3;
    let sorted = |text: &str| {
        let mut characters: Vec<char> = text.chars().collect();
        characters.sort_unstable();
        characters
    };
    let is_word = |text: &str| text.len() >= MIN_LETTERS && !text.starts_with(|c: char| c.is_ascii_digit());
    let is_misspelt = || is_word(group) && is_word(meant) && strsim::damerau_levenshtein(group, meant) <= 1;
    sorted(group) == sorted(meant) || is_misspelt()
}

/// Groups of letters and of digits, in lower case.
fn groups(name: &str) -> Vec<String> {
    let mut groups: Vec<String> = Vec::new();
    let mut last = None;
    for character in name.chars() {
        let kind = character.is_alphanumeric().then(|| character.is_ascii_digit());
        match groups.last_mut().filter(|_| kind == last) {
            Some(group) if kind.is_some() => group.extend(character.to_lowercase()),
            _ if kind.is_some() => groups.push(character.to_lowercase().collect()),
            _ => {}
        }
        last = kind;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::is_typo;

    #[test]
    fn another_gpu_is_no_typing_error() {
        for (name, id) in [
            ("rtx3070", "rtx3090"),
            ("rtx5060", "rtx5070"),
            ("rtx5065", "rtx5060"),
            ("rtx4080-ti", "rtx4080"),
            ("l40g", "l40s"),
            ("a10m", "a10g"),
            ("p40", "l40"),
            ("h20", "h200"),
            ("t5", "t4"),
            ("titan-x", "titan-v"),
            ("rtx5090-dd", "rtx5090-d"),
        ] {
            assert!(!is_typo(name, id), "{name}, {id}");
        }
    }

    #[test]
    fn exchanged_characters_and_misspelt_words_are() {
        for (name, id) in [
            ("rtx4900", "rtx4090"),
            ("RTX 4900", "rtx4090"),
            ("rtz4090", "rtx4090"),
            ("gtx4090", "rtx4090"),
            ("rtx4090-latop", "rtx4090-laptop"),
            ("a100-pice-80gb", "a100-pcie-80gb"),
            ("rtx4070-it", "rtx4070-ti"),
        ] {
            assert!(is_typo(name, id), "{name}, {id}");
        }
    }
}
