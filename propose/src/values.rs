//! Numbers in code: literals, constants, and expressions of both.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprLit, Item, Lit, Stmt};

use crate::sources::Source;

/// Constants of a program, and functions that return an expression, by name.
#[derive(Default)]
pub(super) struct Values {
    all: BTreeMap<String, Vec<Expr>>,
    /// Numbers of the names that were looked up; `None` while a name is evaluated, so that a circle of constants has no value.
    numbers: RefCell<HashMap<String, Option<u64>>>,
    /// Names of the package's own constants.
    own: BTreeSet<String>,
    /// True while the package's own sources are read.
    is_own: bool,
}

impl Values {
    pub(super) fn new<'s>(sources: impl Iterator<Item = &'s Source>) -> Self {
        let mut values = Self::default();
        for source in sources {
            values.is_own = source.is_own();
            values.visit_file(&source.file);
        }
        values
    }

    /// The number of an expression; `None` if the expression has another part, or a constant that is defined twice with
    /// different values.
    pub(super) fn number(&self, value: &Expr) -> Option<u64> {
        evaluate(value, &mut |name| self.named(name))
    }

    /// The number of a constant or of a function without arguments.
    pub(super) fn named(&self, name: &str) -> Option<u64> {
        let mut numbers = self.numbers.borrow_mut();
        // Names to evaluate; true for those whose parts have been evaluated.
        let mut open = vec![(name.to_owned(), false)];
        while let Some((name, has_parts)) = open.pop() {
            if !has_parts && numbers.contains_key(&name) {
                continue;
            }
            let mut missing = Vec::new();
            let number = self.constant(&name, &mut |part| {
                let known = numbers.get(part).copied();
                if known.is_none() && part != name {
                    missing.push((part.to_owned(), false));
                }
                known.flatten()
            });
            if missing.is_empty() {
                numbers.insert(name, number);
            } else {
                numbers.insert(name.clone(), None);
                open.push((name, true));
                open.append(&mut missing);
            }
        }
        numbers.get(name).copied().flatten()
    }

    /// The first of the package's own constants whose name in lower case is meant.
    pub(super) fn own(&self, is_meant: impl Fn(&str) -> bool) -> Option<&str> {
        self.own.iter().map(String::as_str).find(|name| is_meant(&name.to_lowercase()))
    }

    fn constant(&self, name: &str, named: &mut dyn FnMut(&str) -> Option<u64>) -> Option<u64> {
        let definitions = self.all.get(name)?;
        let numbers: Vec<_> = definitions.iter().map(|value| evaluate(value, named)).collect();
        let first = (*numbers.first()?)?;
        numbers.iter().all(|other| *other == Some(first)).then_some(first)
    }
}

/// The number of an expression with these numbers of names. All of its names are looked up, whatever their numbers.
fn evaluate(value: &Expr, named: &mut dyn FnMut(&str) -> Option<u64>) -> Option<u64> {
    let mut part = |value: &Expr| evaluate(value, named);
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse().ok(),
        Expr::Paren(inner) => part(&inner.expr),
        Expr::Group(inner) => part(&inner.expr),
        Expr::Cast(inner) => part(&inner.expr),
        Expr::Reference(inner) => part(&inner.expr),
        Expr::Block(inner) => match &inner.block.stmts[..] {
            [Stmt::Expr(value, None)] => part(value),
            _ => None,
        },
        Expr::Binary(binary) => {
            let (left, right) = (part(&binary.left), part(&binary.right));
            let (left, right) = (left?, right?);
            match binary.op {
                BinOp::Add(_) => left.checked_add(right),
                BinOp::Sub(_) => left.checked_sub(right),
                BinOp::Mul(_) => left.checked_mul(right),
                BinOp::Div(_) => left.checked_div(right),
                BinOp::Shl(_) => left.checked_mul(2_u64.checked_pow(u32::try_from(right).ok()?)?),
                _ => None,
            }
        }
        Expr::MethodCall(call) if call.method == "pow" => {
            let (base, exponent) = (part(&call.receiver), part(call.args.first()?));
            base?.checked_pow(u32::try_from(exponent?).ok()?)
        }
        Expr::MethodCall(call) if call.method == "into" => part(&call.receiver),
        Expr::Call(call) if call.args.is_empty() => part(&call.func),
        Expr::Path(path) => named(&path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Values {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Const(item) => self.add_constant(&item.ident, &item.expr),
            Item::Static(item) if matches!(item.mutability, syn::StaticMutability::None) => {
                self.add_constant(&item.ident, &item.expr);
            }
            Item::Fn(item) if item.sig.inputs.is_empty() => self.add_function(&item.sig.ident, &item.block),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.add_constant(&item.ident, &item.expr);
    }
}

impl Values {
    fn add_constant(&mut self, name: &syn::Ident, value: &Expr) {
        if self.is_own {
            self.own.insert(name.to_string());
        }
        self.add(name, value);
    }

    fn add(&mut self, name: &syn::Ident, value: &Expr) {
        self.all.entry(name.to_string()).or_default().push(value.clone());
    }

    fn add_function(&mut self, name: &syn::Ident, block: &syn::Block) {
        if let [Stmt::Expr(value, None)] = &block.stmts[..] {
            self.add(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Values;
    use syn::visit::Visit as _;

    #[test]
    fn constants_of_the_package_are_named() {
        let file =
            syn::parse_file("const STEPS: usize = 2; fn steps() -> usize { 3 } impl X { const HEADS: u64 = 8; }");
        let mut values = Values { is_own: true, ..Values::default() };
        values.visit_file(&file.expect("Rust"));
        assert_eq!(values.own(|name| name == "steps"), Some("STEPS"));
        assert_eq!(values.own(|name| name == "heads"), Some("HEADS"));
        assert_eq!(values.named("steps"), Some(3));
        values.is_own = false;
        values.visit_file(&syn::parse_file("const BATCH: usize = 2;").expect("Rust"));
        assert_eq!(values.own(|name| name == "batch"), None);
    }

    #[test]
    fn numbers_follow_from_constants() {
        let file = "const BS: usize = 16; const TWICE: usize = BS * 2; impl X { const HEADS: u64 = 1 << 3; }
            fn batch() -> usize { TWICE } static mut FREE: usize = 1; const LOOP: usize = LOOP + 1;
            mod a { pub const N: usize = 1; } mod b { pub const N: usize = 2; } const SAME: usize = 3; mod c { const SAME: usize = 3; }";
        let mut values = Values::default();
        values.visit_file(&syn::parse_file(file).expect("Rust"));
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
        let mut file: String =
            (1..=12).map(|at| format!("const A{at}: u64 = {};", sum(&format!("A{}", at - 1)))).collect();
        file += "const A0: u64 = 1; const C0: u64 = 1;";
        file += &format!("const TO: u64 = {}; const FRO: u64 = {}; const AT: u64 = TO;", sum("FRO"), sum("TO"));
        file.extend((1..=5_000).map(|at| format!("const C{at}: u64 = C{};", at - 1)));
        let mut values = Values::default();
        values.visit_file(&syn::parse_file(&file).expect("Rust"));
        for (name, number) in [("A12", Some(1 << 36)), ("A1", Some(8)), ("AT", None), ("FRO", None), ("C5000", Some(1))]
        {
            assert_eq!(values.named(name), number, "{name}");
        }
    }
}
