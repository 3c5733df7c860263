//! Dimensions of models and keys of goals by name, and their values in the words of a command line.

pub use gpu_tuned_workload::dims::*;

/// Parses a value as TOML, else takes the text as a word, which needs no quotes.
pub fn parse_value(text: &str) -> toml::Value {
    let mut table: toml::Table = format!("value = {text}").parse().unwrap_or_default();
    let value = table.remove("value").filter(|_| table.is_empty());
    value.unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::parse_value;

    #[test]
    fn a_value_is_all_of_the_text() {
        assert_eq!(parse_value("8_192").as_integer(), Some(8192));
        assert_eq!(parse_value("adamw").as_str(), Some("adamw"));
        assert_eq!(parse_value("6\nx = 1").as_str(), Some("6\nx = 1"));
    }
}
