//! Numbers, constants and names in a program's code.

use std::collections::BTreeMap;

use proc_macro2::TokenTree;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprCall, ExprLit, ExprMethodCall, Fields, ImplItem, Item, ItemStruct, Lit, Stmt, Type};

use super::sources::Source;
use crate::names::Names;

/// Numbers, constants and names in code.
#[derive(Default)]
pub(super) struct Code {
    /// First number of each field, by config and field.
    pub fields: BTreeMap<(String, String), u64>,
    /// Constants, and functions that return a number: name, type, and value.
    pub constants: Vec<(String, Option<String>, u64)>,
    /// Input and output channels of convolutions.
    pub convolutions: Vec<[u64; 2]>,
    /// Lengths of sequences.
    pub lengths: Vec<u64>,
    /// Identifiers and literals.
    pub names: Vec<String>,
    /// Structs of the program outside of inline modules.
    pub own: Vec<Own>,
}

pub(super) struct Own {
    pub name: String,
    pub file: String,
    pub item: ItemStruct,
}

impl Code {
    /// Reads sources; the first occurrence counts.
    pub(super) fn new<'s>(sources: impl Iterator<Item = &'s Source> + Clone) -> Self {
        let mut code = Self::default();
        let own: Vec<(String, Vec<String>)> = sources.clone().flat_map(|source| configs(&source.file.items)).collect();
        for source in sources {
            let mut reader = Reader { code: &mut code, own: &own };
            reader.visit_file(&source.file);
            code.constants(&source.file.items);
            code.structs(source);
            if let Ok(tokens) = source.text.parse() {
                code.names(tokens);
            }
        }
        code
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
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
        for item in items {
            match item {
                Item::Const(item) => {
                    self.constants.extend(number(&item.expr).map(|value| (item.ident.to_string(), None, value)));
                }
                Item::Impl(item) => {
                    let of = last(&item.self_ty);
                    for member in &item.items {
                        let ImplItem::Fn(function) = member else { continue };
                        let [Stmt::Expr(value, None)] = &function.block.stmts[..] else { continue };
                        let name = function.sig.ident.to_string();
                        self.constants.extend(number(value).map(|value| (name, of.clone(), value)));
                    }
                }
                Item::Mod(item) => self.constants(item.content.as_ref().map_or(&[][..], |(_, items)| items)),
                _ => {}
            }
        }
    }

    fn names(&mut self, tokens: proc_macro2::TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => self.names.push(ident.to_string()),
                TokenTree::Literal(literal) => self.names.push(literal.to_string().trim_matches('"').to_owned()),
                TokenTree::Group(group) => self.names(group.stream()),
                TokenTree::Punct(_) => {}
            }
        }
    }
}

struct Reader<'c> {
    code: &'c mut Code,
    /// The program's Burn configs, with the arguments of their constructors.
    own: &'c [(String, Vec<String>)],
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let Some([of, function]) = path(&call.func) {
            match function.as_str() {
                "new" => self.constructed(&of, call),
                "Fixed" | "Max" => self.code.lengths.extend(call.args.first().and_then(number)),
                _ => {}
            }
        }
        visit::visit_expr_call(self, call);
    }

    // The last call is visited first, and counts.
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let field = call.method.to_string();
        if let Some(field) = field.strip_prefix("with_")
            && let Some(value) = call.args.first().and_then(number)
            && let Some([of, function]) = root(&call.receiver)
            && ["new", "default"].contains(&function.as_str())
        {
            self.code.fields.entry((of, field.to_owned())).or_insert(value);
        }
        visit::visit_expr_method_call(self, call);
    }

    // Defaults of Burn's configs may be in quotes.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Some(Expr::Call(call)) = default(attribute) {
            self.visit_expr_call(&call);
        }
    }
}

impl Reader<'_> {
    fn constructed(&mut self, of: &str, call: &ExprCall) {
        if of.starts_with("Conv")
            && let Some(Expr::Array(pair)) = call.args.first()
            && let [Some(from), Some(to)] = pair.elems.iter().map(number).collect::<Vec<_>>()[..]
        {
            self.code.convolutions.push([from, to]);
        }
        let own = self.own.iter().find(|(name, _)| name == of).map(|(_, fields)| fields.clone());
        let of_burn =
            || Names::get().burn_config(of).map(|fields| fields.iter().map(|(name, _)| name.clone()).collect());
        let names = own.or_else(of_burn);
        for (name, value) in names.unwrap_or_default().into_iter().zip(&call.args) {
            if let Some(value) = number(value) {
                self.code.fields.entry((of.to_owned(), name)).or_insert(value);
            }
        }
    }
}

/// Burn configs among items, with the fields of their constructors: those without a default.
fn configs(items: &[Item]) -> Vec<(String, Vec<String>)> {
    let config = |item: &Item| {
        let Item::Struct(item) = item else { return None };
        let Fields::Named(fields) = &item.fields else { return None };
        if !super::candidate::derives(&item.attrs, "Config") {
            return None;
        }
        let taken = fields.named.iter().filter(|field| !field.attrs.iter().any(|it| it.path().is_ident("config")));
        Some((item.ident.to_string(), taken.filter_map(|field| Some(field.ident.as_ref()?.to_string())).collect()))
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
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => syn::parse_str(&text.value()).ok(),
        other => Some(other.clone()),
    }
}

pub(super) fn number(value: &Expr) -> Option<u64> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse().ok(),
        _ => None,
    }
}

/// Last two names of the function at the start of a method chain.
fn root(value: &Expr) -> Option<[String; 2]> {
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
