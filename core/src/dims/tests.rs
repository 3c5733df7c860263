use super::*;

#[test]
fn a_value_is_all_of_the_text() {
    assert_eq!(parse_value("8_192").as_integer(), Some(8192));
    assert_eq!(parse_value("adamw").as_str(), Some("adamw"));
    assert_eq!(parse_value("6\nx = 1").as_str(), Some("6\nx = 1"));
}
