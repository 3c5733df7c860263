//! The device of a program.

use syn::spanned::Spanned;
use syn::{Expr, Local, Pat, Stmt};

use crate::code::path;
use crate::sources::{Patch, Source};

/// Replaces the first device in a function by the session's; returns false without one. The type stays, so that its import
/// is used.
pub(super) fn edit<'a>(source: &'a Source, block: &'a [Stmt], krate: &str, patch: &mut Patch<'a>) -> bool {
    let Some(DeviceVariable { local, value, ty }) = block.iter().find_map(device) else { return false };
    let ours = format!("{krate}::device()");
    let end = value.span().byte_range().end;
    let (start, ours) = match &local.pat {
        Pat::Ident(name) => (name.span().byte_range().end, format!(": {ty} = {ours}")),
        _ => (value.span().byte_range().start, ours),
    };
    patch.note(source, start, "the session's device: a GPU where there is one, else the CPU");
    patch.replace(source, start..end, ours);
    true
}

struct DeviceVariable<'a> {
    local: &'a Local,
    value: &'a Expr,
    /// Type as the program writes it.
    ty: String,
}

fn device(statement: &Stmt) -> Option<DeviceVariable<'_>> {
    let Stmt::Local(local) = statement else { return None };
    let value = &*local.init.as_ref().filter(|_| local.attrs.is_empty())?.expr;
    let Expr::Call(call) = value else { return None };
    let Expr::Path(function) = &*call.func else { return None };
    path(&call.func).filter(|[ty, _]| ty == "Device")?;
    let names: Vec<_> = function.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    let (_, ty) = names.split_last()?;
    let root = if function.path.leading_colon.is_some() { "::" } else { "" };
    Some(DeviceVariable { local, value, ty: format!("{root}{}", ty.join("::")) })
}
