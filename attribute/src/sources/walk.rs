//! A walk through code that is compiled once, for all visitors: each implementation of `syn::visit::Visit` compiles the walk again.

use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, ExprPath, File, ImplItem, Item, Local, Macro, Type};

/// A node of code that visitors look at.
#[derive(Clone, Copy)]
pub enum Node<'ast> {
    /// A file.
    File(&'ast File),
    /// An attribute.
    Attribute(&'ast Attribute),
    /// An item.
    Item(&'ast Item),
    /// An item in an `impl` block.
    ImplItem(&'ast ImplItem),
    /// A block.
    Block(&'ast Block),
    /// A variable's definition.
    Local(&'ast Local),
    /// An expression.
    Expr(&'ast Expr),
    /// A path of an expression or of a pattern.
    Path(&'ast ExprPath),
    /// A macro's call.
    Macro(&'ast Macro),
    /// A type.
    Type(&'ast Type),
}

/// A visitor of code.
pub trait Visitor<'ast> {
    /// Visits a node. [`Node::walk`] visits the nodes within.
    fn visit(&mut self, node: Node<'ast>);
}

impl<'ast> Node<'ast> {
    /// Visits the nodes within this node, in the order of the code.
    pub fn walk(self, visitor: &mut dyn Visitor<'ast>) {
        let walk = &mut Walk(visitor);
        match self {
            Self::File(node) => visit::visit_file(walk, node),
            Self::Attribute(node) => visit::visit_attribute(walk, node),
            Self::Item(node) => visit::visit_item(walk, node),
            Self::ImplItem(node) => visit::visit_impl_item(walk, node),
            Self::Block(node) => visit::visit_block(walk, node),
            Self::Local(node) => visit::visit_local(walk, node),
            Self::Expr(node) => visit::visit_expr(walk, node),
            Self::Path(node) => visit::visit_expr_path(walk, node),
            Self::Macro(node) => visit::visit_macro(walk, node),
            Self::Type(node) => visit::visit_type(walk, node),
        }
    }
}

struct Walk<'v, 'ast>(&'v mut dyn Visitor<'ast>);

impl<'ast> Visit<'ast> for Walk<'_, 'ast> {
    fn visit_attribute(&mut self, node: &'ast Attribute) {
        self.0.visit(Node::Attribute(node));
    }

    fn visit_item(&mut self, node: &'ast Item) {
        self.0.visit(Node::Item(node));
    }

    fn visit_impl_item(&mut self, node: &'ast ImplItem) {
        self.0.visit(Node::ImplItem(node));
    }

    fn visit_block(&mut self, node: &'ast Block) {
        self.0.visit(Node::Block(node));
    }

    fn visit_local(&mut self, node: &'ast Local) {
        self.0.visit(Node::Local(node));
    }

    fn visit_expr(&mut self, node: &'ast Expr) {
        self.0.visit(Node::Expr(node));
    }

    fn visit_expr_path(&mut self, node: &'ast ExprPath) {
        self.0.visit(Node::Path(node));
    }

    fn visit_macro(&mut self, node: &'ast Macro) {
        self.0.visit(Node::Macro(node));
    }

    fn visit_type(&mut self, node: &'ast Type) {
        self.0.visit(Node::Type(node));
    }
}
