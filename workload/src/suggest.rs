/// Formats `; did you mean `x`?` for the nearest known word; empty if none is within a typing error.
pub fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let nearest = known.into_iter().map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate)).min();
    match nearest {
        Some((distance, candidate)) if distance * 3 <= word.len().max(3) => format!("; did you mean `{candidate}`?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::suggest;

    #[test]
    fn only_a_near_miss_is_suggested() {
        let known = ["rtx4090", "h200"];
        assert_eq!(suggest("rtx4900", known), "; did you mean `rtx4090`?");
        assert_eq!(suggest("voodoo2", known), "");
    }
}
