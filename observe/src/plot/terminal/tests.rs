use super::{Style, terminal};

#[test]
fn blocks_are_rectangles_and_words_begin_at_their_columns() {
    let svg = terminal("a & b", &[(Style::Plain, "██▌·  <1 GiB>    end".to_owned()), (Style::Added, "+".to_owned())]);
    // Two whole cells of 7.4, then half of one.
    assert!(svg.contains("M14.0 30.0h14.8v17.0") && svg.contains("M28.8 30.0h3.7v17.0"), "{svg}");
    assert!(
        svg.contains(&format!("x=\"{:.1}\" y=\"43\" textLength=\"51.8\">&lt;1 GiB&gt;<", 14.0 + 6.0 * 7.4)),
        "{svg}"
    );
    assert!(svg.contains(&format!("x=\"{:.1}\" y=\"43\" textLength=\"22.2\">end<", 14.0 + 17.0 * 7.4)), "{svg}");
    assert!(svg.contains("<title>a &amp; b</title>") && svg.contains("class=\"cell added\""), "{svg}");
}
