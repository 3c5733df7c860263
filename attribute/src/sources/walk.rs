//! A walk through code that is compiled once, for all visitors: each implementation of `syn::visit::Visit` compiles the walk again.

use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, ExprPath, File, ImplItem, Item, Local, Macro, Type};

/// A visitor of code.
pub trait Visitor<'ast> {
    /// Visits a node. [`Node::walk`] visits the nodes within.
    fn visit(&mut self, node: Node<'ast>);
}

struct Walk<'v, 'ast>(&'v mut dyn Visitor<'ast>);

/// Defines the nodes that visitors look at: `/// documentation`, then `Node(Type): function of syn's walk,`.
macro_rules! nodes {
    ($($(#[$doc:meta])* $node:ident($type:ty): $function:ident,)+) => {
        /// A node of code that visitors look at.
        #[derive(Clone, Copy)]
        pub enum Node<'ast> { $($(#[$doc])* $node(&'ast $type),)+ }

        impl<'ast> Node<'ast> {
            /// Visits the nodes within this node, in the order of the code.
            pub fn walk(self, visitor: &mut dyn Visitor<'ast>) {
                match self { $(Self::$node(node) => visit::$function(&mut Walk(visitor), node),)+ }
            }
        }

        impl<'ast> Visit<'ast> for Walk<'_, 'ast> {
            $(fn $function(&mut self, node: &'ast $type) {
                self.0.visit(Node::$node(node));
            })+
        }
    };
}

nodes! {
    /// A file.
    File(File): visit_file,
    /// An attribute.
    Attribute(Attribute): visit_attribute,
    /// An item.
    Item(Item): visit_item,
    /// An item in an `impl` block.
    ImplItem(ImplItem): visit_impl_item,
    /// A block.
    Block(Block): visit_block,
    /// A variable's definition.
    Local(Local): visit_local,
    /// An expression.
    Expr(Expr): visit_expr,
    /// A path of an expression or of a pattern.
    Path(ExprPath): visit_expr_path,
    /// A macro's call.
    Macro(Macro): visit_macro,
    /// A type.
    Type(Type): visit_type,
}
