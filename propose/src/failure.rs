//! Error handling in the style of a function.

use syn::{File, GenericArgument, Item, PathArguments, ReturnType, Type, UseTree};

use crate::code::last;

/// Ends the program with the message of an error.
const PANIC: &str = ".unwrap_or_else(|error| panic!(\"{error}\"))";
/// Crates whose `Result` and errors are made from any error.
const ANY_ERROR: [&str; 3] = ["anyhow", "eyre", "color_eyre"];

/// Handling of an error of gpu-tuned in a function with this output: `?` where that compiles.
pub(super) fn handling(output: &ReturnType, file: &File) -> &'static str {
    let ReturnType::Type(_, ty) = output else { return PANIC };
    let Type::Path(path) = &**ty else { return PANIC };
    let Some(segment) = path.path.segments.last().filter(|segment| segment.ident == "Result") else { return PANIC };
    let error = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => arguments.args.iter().nth(1),
        _ => None,
    };
    match error {
        None if comes_from(&path.path, file, "Result") => "?",
        Some(GenericArgument::Type(error)) => for_type(error, file),
        _ => PANIC,
    }
}

fn for_type(error: &Type, file: &File) -> &'static str {
    let Type::Path(path) = error else { return PANIC };
    let name = last(error).unwrap_or_default();
    match name.as_str() {
        "String" => ".map_err(|error| error.to_string())?",
        "Box" => match &path.path.segments[0].arguments {
            PathArguments::AngleBracketed(arguments) if is_dyn_error(arguments.args.first()) => "?",
            _ => PANIC,
        },
        _ if comes_from(&path.path, file, &name) => "?",
        _ => PANIC,
    }
}

fn is_dyn_error(argument: Option<&GenericArgument>) -> bool {
    let Some(GenericArgument::Type(Type::TraitObject(object))) = argument else { return false };
    object.bounds.iter().any(|bound| match bound {
        syn::TypeParamBound::Trait(bound) => bound.path.segments.last().is_some_and(|last| last.ident == "Error"),
        _ => false,
    })
}

/// Returns true if a path is of a crate with errors made from any error, by itself or by an import of the name.
fn comes_from(path: &syn::Path, file: &File, name: &str) -> bool {
    let is_any = |ident: &syn::Ident| ANY_ERROR.iter().any(|krate| ident == krate);
    if path.segments.len() > 1 {
        return path.segments.first().is_some_and(|first| is_any(&first.ident));
    }
    file.items.iter().any(|item| match item {
        Item::Use(item) => match &item.tree {
            UseTree::Path(path) => is_any(&path.ident) && imports(&path.tree, name),
            _ => false,
        },
        _ => false,
    })
}

fn imports(tree: &UseTree, name: &str) -> bool {
    match tree {
        UseTree::Path(path) => imports(&path.tree, name),
        UseTree::Name(imported) => imported.ident == name,
        UseTree::Rename(renamed) => renamed.rename == name,
        UseTree::Glob(_) => true,
        UseTree::Group(group) => group.items.iter().any(|tree| imports(tree, name)),
    }
}

#[cfg(test)]
mod tests {
    use syn::Item;

    use super::{PANIC, handling};

    #[test]
    fn an_error_is_returned_only_where_it_becomes_the_function_s_error() {
        for (text, expected) in [
            ("fn f() {}", PANIC),
            ("fn f() -> anyhow::Result<()> {}", "?"),
            ("use anyhow::{Context, Result};\nfn f() -> Result<()> {}", "?"),
            ("use anyhow::Result as Res;\nfn f() -> Result<()> {}", PANIC),
            ("fn f() -> Result<()> {}", PANIC),
            ("fn f() -> std::io::Result<()> {}", PANIC),
            ("fn f() -> miette::Result<()> {}", PANIC),
            ("use miette::Result;\nfn f() -> Result<()> {}", PANIC),
            ("use color_eyre::eyre::Result;\nfn f() -> Result<()> {}", "?"),
            ("fn f() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {}", "?"),
            ("fn f() -> Result<(), Box<dyn Display>> {}", PANIC),
            ("fn f() -> Result<(), anyhow::Error> {}", "?"),
            ("fn f() -> Result<(), String> {}", ".map_err(|error| error.to_string())?"),
            ("fn f() -> Result<(), MyError> {}", PANIC),
            ("fn f() -> Option<()> {}", PANIC),
        ] {
            let file = syn::parse_file(text).expect("Rust");
            let found = file.items.iter().find_map(|item| match item {
                Item::Fn(function) => Some(handling(&function.sig.output, &file)),
                _ => None,
            });
            assert_eq!(found, Some(expected), "{text}");
        }
    }
}
