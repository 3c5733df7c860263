//! Functions of a loaded library, with their types.

/// Defines `Functions`: a field for each function, and `load`, which finds all of them by their names.
///
/// The module that uses the macro is responsible for the types: they are those of the library's header.
macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),* $(,)?) -> $output:ty;)*) => {
        struct Functions { $($field: unsafe extern "C" fn($($argument),*) -> $output,)* }

        impl Functions {
            fn load(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the signatures are those of the library's header.
                unsafe { Ok(Self { $($field: *library.get($symbol)?,)* }) }
            }
        }
    };
}

pub(crate) use functions;
