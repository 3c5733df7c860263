use super::bar;

#[test]
fn bars_are_as_long_as_their_share() {
    for (share, filled) in [(0.0, ""), (1.0, "████"), (0.5, "██"), (0.28, "█▏"), (0.01, ""), (7.0, "████"), (-1.0, "")]
    {
        let (bar, left) = bar(4, share);
        assert_eq!((bar.as_str(), bar.chars().count() + left.chars().count()), (filled, 4), "{share}");
    }
}
