use super::*;

#[test]
fn constants_of_the_package_are_named() {
    let file = syn::parse_file("const STEPS: usize = 2; fn steps() -> usize { 3 } impl X { const HEADS: u64 = 8; }");
    let mut values = Values { is_own: true, ..Values::default() };
    Node::File(&file.expect("Rust")).walk(&mut values);
    assert_eq!(values.own(|name| name == "steps"), Some("STEPS"));
    assert_eq!(values.own(|name| name == "heads"), Some("HEADS"));
    assert_eq!(values.named("steps"), Some(3));
    values.is_own = false;
    Node::File(&syn::parse_file("const BATCH: usize = 2;").expect("Rust")).walk(&mut values);
    assert_eq!(values.own(|name| name == "batch"), None);
}

#[test]
fn numbers_follow_from_constants() {
    let file = "const BS: usize = 16; const TWICE: usize = BS * 2; impl X { const HEADS: u64 = 1 << 3; }
        fn batch() -> usize { TWICE } static mut FREE: usize = 1; const LOOP: usize = LOOP + 1;
        mod a { pub const N: usize = 1; } mod b { pub const N: usize = 2; } const SAME: usize = 3; mod c { const SAME: usize = 3; }";
    let mut values = Values::default();
    Node::File(&syn::parse_file(file).expect("Rust")).walk(&mut values);
    for (text, number) in [
        ("64", Some(64)),
        ("1_024u32", Some(1024)),
        ("BS * 2", Some(32)),
        ("(crate::TWICE / 4) as usize", Some(8)),
        ("Self::HEADS", Some(8)),
        ("batch()", Some(32)),
        ("2usize.pow(5)", Some(32)),
        ("{ BS - 20 }", None),
        ("BS / 0", None),
        ("1 << 70", None),
        ("FREE", None),
        ("LOOP", None),
        ("N", None),
        ("SAME", Some(3)),
        ("args.batch", None),
        ("\"64\"", None),
        ("64.0", None),
    ] {
        assert_eq!(values.number(&syn::parse_str(text).expect("an expression")), number, "{text}");
    }
}

#[test]
fn each_constant_is_evaluated_once() {
    let sum = |name: &str| [name; 8].join(" + ");
    let mut file: String = (1..=12).map(|at| format!("const A{at}: u64 = {};", sum(&format!("A{}", at - 1)))).collect();
    file += "const A0: u64 = 1; const C0: u64 = 1;";
    file += &format!("const TO: u64 = {}; const FRO: u64 = {}; const AT: u64 = TO;", sum("FRO"), sum("TO"));
    file.extend((1..=5_000).map(|at| format!("const C{at}: u64 = C{};", at - 1)));
    let mut values = Values::default();
    Node::File(&syn::parse_file(&file).expect("Rust")).walk(&mut values);
    for (name, number) in [("A12", Some(1 << 36)), ("A1", Some(8)), ("AT", None), ("FRO", None), ("C5000", Some(1))] {
        assert_eq!(values.named(name), number, "{name}");
    }
}

#[test]
fn channels_of_a_config_are_numbers() {
    let text = "#[derive(Config)] struct NetConfig { #[config(default = 16)] channels: usize }
        impl NetConfig { fn init(&self) { Conv2dConfig::new([3, self.channels], [3, 3]); Conv2dConfig::new([self.channels, 32], [3, 3]); } }";
    let channels = |text: &str| {
        let sources = [Source::of_text("src/main.rs", text)];
        Code::new(sources.iter(), &Rc::new(Values::new(sources.iter()))).channels()
    };
    assert_eq!(channels(text), Some(vec![[3, 16], [16, 32]]));
    assert_eq!(channels(&text.replace("#[config(default = 16)]", "")), None);
}
