//! Numbers, constants and names in a program's code.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use gpu_tuned_attribute::sources::{Node, Visitor, parse_within_limit};
use proc_macro2::TokenTree;
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, BinOp, Expr, ExprCall, ExprLit, ExprMethodCall, ExprStruct, Fields, ImplItem, Item, ItemStruct, Lit,
    Member, Stmt, Type,
};

use crate::candidate::{derives, is_count, named_fields, without_default};
use crate::flow::{Flow, Reaching, Value, Variable, variable_name};
use crate::model::BurnNames;
use crate::sources::{Source, all_items};
use crate::training_loop::ACCUMULATION;

/// Numbers, constants and names in code.
#[derive(Default)]
pub(super) struct Code {
    /// The only number that the program sets for a field, by config and field.
    pub fields: BTreeMap<(String, String), u64>,
    /// All values of each field; `None` for one that is no number.
    pub all: BTreeMap<(String, String), BTreeSet<Option<u64>>>,
    /// Constants, and functions that return a number: name, type, and value.
    pub constants: Vec<(String, Option<String>, u64)>,
    /// Input and output channels of Burn's convolutions and of blocks such as `ConvBlock`; `None` for channels that are no
    /// pair. True for Burn's own.
    pub convolutions: Vec<(bool, Option<[Value; 2]>)>,
    pub dense: Vec<Dense>,
    /// Lengths of sequences.
    pub lengths: Vec<u64>,
    /// Identifiers and literals.
    pub names: Vec<String>,
    /// Structs of the program outside of inline modules.
    pub own: Vec<Own>,
    values: Rc<Values>,
    pub flow: Flow,
}

/// A dense layer.
pub(super) struct Dense {
    /// Outputs as written.
    pub text: String,
    pub sizes: [Value; 2],
    /// Type of the implementation around.
    pub of: Option<String>,
}

pub(super) struct Own {
    pub name: String,
    pub file: String,
    pub item: ItemStruct,
}

impl Code {
    /// Reads sources; the first occurrence counts.
    pub(super) fn new<'s>(sources: impl Iterator<Item = &'s Source> + Clone, values: &Rc<Values>) -> Self {
        let mut code = Self { values: Rc::clone(values), ..Self::default() };
        let own: Vec<(String, Vec<String>)> = sources.clone().flat_map(|source| configs(&source.file.items)).collect();
        sources.clone().for_each(|source| code.structs(source));
        for source in sources {
            let mut reader = Reader { code: &mut code, own: &own, source, implements: None, scopes: Vec::new() };
            Node::File(&source.file).walk(&mut reader);
            code.constants(&source.file.items);
            code.names.extend(source.tokens.iter().filter_map(|token| match token {
                TokenTree::Ident(ident) => Some(ident.to_string()),
                TokenTree::Literal(literal) => Some(literal.to_string().trim_matches('"').to_owned()),
                _ => None,
            }));
        }
        code.settle();
        code
    }

    /// The number of an expression, with the program's constants.
    pub(super) fn number(&self, value: &Expr) -> Option<u64> {
        self.values.number(value)
    }

    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    /// Input and output channels of all convolutions; `None` if some are unknown. Blocks count in place of the convolutions in
    /// their definition.
    pub(super) fn channels(&self) -> Option<Vec<[u64; 2]>> {
        let pair = |[from, to]: &[Value; 2]| Some([self.number_of(from)?, self.number_of(to)?]);
        let all: Vec<_> = self.convolutions.iter().map(|(is_burn, it)| (is_burn, it.as_ref().and_then(pair))).collect();
        let has_blocks = all.iter().any(|(is_burn, channels)| !**is_burn && channels.is_some());
        let all = all.into_iter().filter(|(is_burn, channels)| !(has_blocks && **is_burn && channels.is_none()));
        all.map(|(_, channels)| channels).collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Returns false for a field of the program's structs that is no count.
    pub(super) fn can_count(&self, of: &str, field: &str) -> bool {
        let mut own = self.own.iter().filter(|own| own.name == of).flat_map(|own| named_fields(&own.item));
        own.find(|(_, name)| name == field).is_none_or(|(field, _)| is_count(&field.ty))
    }

    /// The number of a constant of the package with this name in capital letters, if the code uses the constant. One word means
    /// too much.
    pub(super) fn constant_of(&self, name: &str) -> Option<u64> {
        let name = self.values.own(|own| own == name).filter(|_| name.contains('_'))?;
        self.values.named(name).filter(|_| self.has(name))
    }

    fn structs(&mut self, source: &Source) {
        for item in &source.file.items {
            if let Item::Struct(item) = item {
                let (name, file) = (item.ident.to_string(), source.name.clone());
                self.own.push(Own { name, file, item: item.clone() });
            }
        }
    }

    fn constants(&mut self, items: &[Item]) {
        for item in all_items(items) {
            match item {
                Item::Const(item) => {
                    self.constants
                        .extend(self.values.number(&item.expr).map(|value| (item.ident.to_string(), None, value)));
                }
                Item::Impl(item) => {
                    let of = last(&item.self_ty);
                    for member in &item.items {
                        let ImplItem::Fn(function) = member else { continue };
                        let [Stmt::Expr(value, None)] = &function.block.stmts[..] else { continue };
                        let name = function.sig.ident.to_string();
                        self.constants.extend(self.values.number(value).map(|value| (name, of.clone(), value)));
                    }
                }
                _ => {}
            }
        }
    }
}

pub(super) struct Reader<'c> {
    pub code: &'c mut Code,
    /// The program's Burn configs, with the arguments of their constructors.
    own: &'c [(String, Vec<String>)],
    pub source: &'c Source,
    /// Type of the implementation around.
    pub implements: Option<String>,
    /// Variables of the function around, by blocks.
    pub scopes: Vec<BTreeMap<String, Variable>>,
}

impl Visitor<'_> for Reader<'_> {
    fn visit(&mut self, node: Node<'_>) {
        match node {
            Node::Expr(Expr::Call(call)) => self.call(call),
            // The last call is visited first, and counts.
            Node::Expr(Expr::MethodCall(call)) => self.method_call(call),
            Node::Expr(Expr::Struct(literal)) => self.literal(literal),
            Node::Expr(Expr::Assign(assignment)) => self.assign(assignment),
            Node::Expr(Expr::Closure(closure)) => {
                let names = closure.inputs.iter().filter_map(variable_name);
                return self.within(names.map(|name| (name, Variable::default())).collect(), node);
            }
            Node::Item(Item::Fn(function)) => {
                return self.function(&function.sig.ident.to_string(), &function.sig, node);
            }
            Node::ImplItem(ImplItem::Fn(function)) => {
                let of = self.implements.as_ref().map(|of| format!("{of}::")).unwrap_or_default();
                return self.function(&(of + &function.sig.ident.to_string()), &function.sig, node);
            }
            Node::Block(_) => return self.within(BTreeMap::new(), node),
            Node::Local(local) => {
                node.walk(self);
                return self.bind(local);
            }
            Node::Item(Item::Impl(item)) => {
                let outer = std::mem::replace(&mut self.implements, last(&item.self_ty));
                node.walk(self);
                self.implements = outer;
                return;
            }
            Node::Attribute(attribute) => {
                // Defaults of Burn's configs may be in quotes.
                if let Some(value @ Expr::Call(_)) = default(attribute) {
                    self.visit(Node::Expr(&value));
                }
                return;
            }
            _ => {}
        }
        node.walk(self);
    }
}

impl Reader<'_> {
    fn call(&mut self, call: &ExprCall) {
        self.record_call(call);
        let Some([of, function]) = path(&call.func) else { return };
        match function.as_str() {
            "new" => self.constructed(&of, call),
            "Fixed" | "Max" => {
                let length = call.args.first().and_then(|value| self.number(value));
                self.code.lengths.extend(length);
            }
            _ => {}
        }
    }

    fn method_call(&mut self, call: &ExprMethodCall) {
        let field = call.method.to_string();
        if let Some(field) = field.strip_prefix("with_")
            && let Some(value) = call.args.first()
            && let Some(of) = self.owner(&call.receiver)
        {
            self.set(of, field.to_owned(), value);
        }
        let arguments = call.args.iter().map(|value| self.value(value)).collect();
        self.code.flow.record(format!(".{field}"), arguments);
        let is_loader = field == "batch_size" && root(&call.receiver).is_some_and(|[of, _]| of == "DataLoaderBuilder");
        if let Some(value) = call.args.first().filter(|_| is_loader || field == ACCUMULATION) {
            let at = value.span().byte_range().start;
            let line = value.span().start().line;
            let reaching = Reaching { file: self.source.name.clone(), at, line, is_loader, value: self.value(value) };
            self.code.flow.reaching.push(reaching);
        }
    }

    fn literal(&mut self, literal: &ExprStruct) {
        let name = literal.path.segments.last().map(|segment| segment.ident.to_string());
        let name = name.and_then(|name| if name == "Self" { self.implements.clone() } else { Some(name) });
        for field in &literal.fields {
            if let (Some(name), Member::Named(field_name)) = (&name, &field.member) {
                self.set(name.clone(), field_name.to_string(), &field.expr);
            }
        }
    }

    pub(super) fn set(&mut self, of: String, field: String, expression: &Expr) {
        // A value that is passed on is set elsewhere.
        let is_passed_on = matches!(expression, Expr::Path(path) if path.path.is_ident(&field));
        let value = self.value(expression);
        if matches!(value, Value::Unknown) && is_passed_on && self.variable(&field).is_none() {
            return;
        }
        let place = format!("{}:{}", self.source.name, expression.span().start().line);
        self.code.flow.sets.push(((of, field), value, place));
    }

    fn constructed(&mut self, of: &str, call: &ExprCall) {
        if of.starts_with("Conv") {
            let channels = match call.args.first() {
                Some(Expr::Array(pair)) => match &pair.elems.iter().collect::<Vec<_>>()[..] {
                    [from, to] => Some([self.value(from), self.value(to)]),
                    _ => None,
                },
                _ => None,
            };
            self.code.convolutions.push((of.ends_with("Config"), channels));
        }
        if let (true, Some(inputs), Some(outputs)) = (of == "LinearConfig", call.args.first(), call.args.get(1)) {
            let (text, sizes) = (outputs.to_token_stream().to_string(), [self.value(inputs), self.value(outputs)]);
            self.code.dense.push(Dense { text, sizes, of: self.implements.clone() });
        }
        let own = self.own.iter().find(|(name, _)| name == of).map(|(_, fields)| fields.clone());
        let of_burn =
            || BurnNames::get().config(of).map(|fields| fields.iter().map(|(name, _)| name.clone()).collect());
        let names = own.or_else(of_burn);
        for (name, value) in names.unwrap_or_default().into_iter().zip(&call.args) {
            self.set(of.to_owned(), name, value);
        }
    }
}

/// Burn configs among items, with the fields of their constructors: those without a default.
fn configs(items: &[Item]) -> Vec<(String, Vec<String>)> {
    let config = |item: &Item| {
        let Item::Struct(item) = item else { return None };
        let is_config = matches!(item.fields, Fields::Named(_)) && derives(&item.attrs, "Config");
        is_config.then(|| (item.ident.to_string(), without_default(item).collect()))
    };
    items.iter().filter_map(config).collect()
}

/// Default in an attribute of Burn.
pub(super) fn default(attribute: &Attribute) -> Option<Expr> {
    if !attribute.path().is_ident("config") {
        return None;
    }
    let value: syn::MetaNameValue = attribute.parse_args().ok()?;
    if !value.path.is_ident("default") {
        return None;
    }
    // Older configs have defaults in quotes.
    match &value.value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => parse_within_limit(&text.value()).ok(),
        other => Some(other.clone()),
    }
}

/// Last two names of the function at the start of a method chain.
pub(super) fn root(value: &Expr) -> Option<[String; 2]> {
    match value {
        Expr::MethodCall(call) => root(&call.receiver),
        Expr::Call(call) => path(&call.func),
        _ => None,
    }
}

/// Last two names of a path.
pub(super) fn path(value: &Expr) -> Option<[String; 2]> {
    let Expr::Path(path) = value else { return None };
    let mut names = path.path.segments.iter().rev().map(|segment| segment.ident.to_string());
    let last = names.next()?;
    Some([names.next()?, last])
}

/// Last name of a type, behind references.
pub(super) fn last(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        Type::Reference(reference) => last(&reference.elem),
        _ => None,
    }
}

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
            Node::File(&source.file).walk(&mut values);
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
pub(super) fn evaluate(value: &Expr, named: &mut dyn FnMut(&str) -> Option<u64>) -> Option<u64> {
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

impl Visitor<'_> for Values {
    fn visit(&mut self, node: Node<'_>) {
        match node {
            Node::Item(Item::Const(item)) => self.add_constant(&item.ident, &item.expr),
            Node::Item(Item::Static(item)) if matches!(item.mutability, syn::StaticMutability::None) => {
                self.add_constant(&item.ident, &item.expr);
            }
            Node::Item(Item::Fn(item)) if item.sig.inputs.is_empty() => {
                self.add_function(&item.sig.ident, &item.block);
            }
            Node::ImplItem(ImplItem::Const(item)) => return self.add_constant(&item.ident, &item.expr),
            _ => {}
        }
        node.walk(self);
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
