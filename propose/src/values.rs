//! Numbers in code: literals, constants, and expressions of both.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprLit, Item, Lit, Stmt};

use crate::sources::Source;

/// Depth of constants that refer to constants. A circle of them has no value.
const MAX_DEPTH: usize = 8;

/// Constants of a program, and functions that return an expression, by name.
#[derive(Default)]
pub(super) struct Values {
    all: BTreeMap<String, Vec<Expr>>,
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
        self.evaluate(value, 0)
    }

    /// The number of a constant or of a function without arguments.
    pub(super) fn named(&self, name: &str) -> Option<u64> {
        self.constant(name, 0)
    }

    /// The first of the package's own constants whose name in lower case is meant.
    pub(super) fn own(&self, is_meant: impl Fn(&str) -> bool) -> Option<&str> {
        self.own.iter().map(String::as_str).find(|name| is_meant(&name.to_lowercase()))
    }

    fn constant(&self, name: &str, depth: usize) -> Option<u64> {
        let definitions = self.all.get(name).filter(|_| depth < MAX_DEPTH)?;
        let mut numbers = definitions.iter().map(|value| self.evaluate(value, depth + 1));
        let first = numbers.next()??;
        numbers.all(|other| other == Some(first)).then_some(first)
    }

    fn evaluate(&self, value: &Expr, depth: usize) -> Option<u64> {
        let part = |value: &Expr| self.evaluate(value, depth);
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
                let (left, right) = (part(&binary.left)?, part(&binary.right)?);
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
                part(&call.receiver)?.checked_pow(u32::try_from(part(call.args.first()?)?).ok()?)
            }
            Expr::MethodCall(call) if call.method == "into" => part(&call.receiver),
            Expr::Call(call) if call.args.is_empty() => part(&call.func),
            Expr::Path(path) => self.constant(&path.path.segments.last()?.ident.to_string(), depth),
            _ => None,
        }
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
}
