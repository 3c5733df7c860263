use super::{Outcome, Setup, ask};

#[test]
fn only_yes_is_yes() {
    for (said, outcome) in [
        ("y\n", Outcome::Written),
        ("Yes\r\n", Outcome::Written),
        ("\n", Outcome::Declined),
        ("", Outcome::Declined),
        ("n\n", Outcome::Declined),
        ("yesterday\n", Outcome::Declined),
    ] {
        let mut asked = Vec::new();
        let answer = ask(&Setup::default(), &mut said.as_bytes(), &mut asked).expect("memory can be read");
        assert_eq!(answer, outcome, "{said:?}");
        assert!(asked.ends_with(b"[y/N] "));
    }
}
