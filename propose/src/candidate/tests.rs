use super::*;

#[test]
fn a_batch_is_a_size_where_it_is_a_count() {
    for (ty, lacks_batch) in [("usize", false), ("Tensor<2>", true)] {
        let text = format!("struct TrainConfig {{ batch: {ty}, epochs: usize, lr: f64, seed: u64 }}");
        let file = syn::parse_file(&text).expect("Rust");
        let found: Vec<_> = candidates(&file.items).map(|it| it.lacks_batch).collect();
        assert_eq!(found, [lacks_batch], "{ty}");
    }
}

#[test]
fn arguments_leave_a_list_with_its_comments() {
    for (before, kept, after) in [
        ("f(a, 64, 4)", &[true, false, false][..], "f(a)"),
        ("f(64, a, 4)", &[false, true, false], "f(a)"),
        ("f(64, 4, a)", &[false, false, true], "f(a)"),
        ("f(a, 64,)", &[true, false], "f(a,)"),
        ("f(64)", &[false], "f()"),
        ("f(a, 64 /* b */)", &[true, false], "f(a /* b */)"),
        ("f(\n    a, // a\n    64, // b\n    c,\n)", &[true, false, true], "f(\n    a, // a\n    // b\n    c,\n)"),
        ("f(\n    a, // a\n    64\n)", &[true, false], "f(\n    a // a\n)"),
        ("f(\n    64,\n    // c\n    c,\n)", &[false, true], "f(\n    // c\n    c,\n)"),
    ] {
        let call: ExprCall = syn::parse_str(before).expect("a call");
        let mut text = before.to_owned();
        let removed = unlisted(before, &call.args, inside(&call.paren_token.span), kept);
        removed.into_iter().rev().for_each(|range| text.replace_range(range, ""));
        assert_eq!(text, after, "{before}");
    }
}
