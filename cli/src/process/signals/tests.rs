use super::{Stat, parsed};

#[test]
fn names_may_have_brackets_and_spaces() {
    let stat = "4711 (a) b (c) T 4000 4242 4000 34816 4711 4194304";
    assert_eq!(parsed(stat), Some(Stat { state: 'T', group: 4242 }));
    assert_eq!(parsed("4711"), None);
}
