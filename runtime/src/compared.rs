//! Texts of config fields, which ranks compare, in code that `#[gpu_tuned]` generates.

use core::fmt::Debug;

/// Config field. Its own method exists where its type has `Debug`, and takes precedence over [`WithoutText`].
pub struct Field<'f, T: ?Sized>(pub &'f T);

impl<T: Debug + ?Sized> Field<'_, T> {
    /// Returns the `Debug` text.
    pub fn text(&self) -> Option<String> {
        Some(format!("{:?}", self.0))
    }
}

/// Config fields of types without `Debug`.
pub trait WithoutText {
    /// Returns `None`.
    fn text(&self) -> Option<String> {
        None
    }
}

impl<T: ?Sized> WithoutText for Field<'_, T> {}

/// Returns the fields with a text.
pub fn with_text(fields: &[(&'static str, Option<String>)]) -> Vec<(&'static str, String)> {
    fields.iter().filter_map(|(name, text)| Some((*name, text.clone()?))).collect()
}

/// Name and `Debug` text of each of these fields that has one.
#[doc(hidden)]
#[macro_export]
macro_rules! __compared {
    ($config:expr, $($(#[$cfg:meta])* $field:ident),*) => {{
        #[allow(unused_imports)]
        use $crate::__private::WithoutText as _;
        $crate::__private::with_text(&[
            $($(#[$cfg])* (::core::stringify!($field), $crate::__private::Field(&$config.$field).text())),*
        ])
    }};
}
