//! Records whose options and lists are left out of files while they are empty.

/// A value that may be left out of files.
pub trait Sparse {
    /// Returns true if the value is left out.
    fn is_absent(&self) -> bool;
}

impl<T> Sparse for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T> Sparse for Vec<T> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

/// Declares records. A field that is an option or a list is left out of files while it is empty.
#[macro_export]
macro_rules! sparse {
    ($($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $type:ident $(<$inner:ty>)?,)*
    })*) => {$(
        $(#[$meta])*
        pub struct $name {$(
            $(#[$field_meta])*
            // The first attribute never applies: it repeats the second for types with a parameter.
            $(
                #[cfg_attr(any(), doc = stringify!($inner))]
                #[serde(default, skip_serializing_if = "gpu_tuned_core::sparse::Sparse::is_absent")]
            )?
            pub $field: $type $(<$inner>)?,
        )*}
    )*};
}
