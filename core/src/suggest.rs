/// Formats `; did you mean `x`?` for the nearest known word; empty if none is within a typing error. Case does not count.
pub fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let lower = word.to_lowercase();
    let distance = |candidate: &str| strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
    let nearest = known.into_iter().map(|candidate| (distance(candidate), candidate)).min();
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
        assert_eq!(suggest("RTX4900", known), "; did you mean `rtx4090`?");
        assert_eq!(suggest("AdamW", ["adam", "adamw"]), "; did you mean `adamw`?");
        assert_eq!(suggest("voodoo2", known), "");
    }
}
