//! cuDNN's C functions.
#![allow(non_snake_case, reason = "the names are cuDNN's")]

use std::ffi::{CStr, c_char};

use crate::behaviour;

#[unsafe(no_mangle)]
unsafe extern "C" fn fake_cudnn_behave(text: *const c_char) {
    // SAFETY: a string, as `Fake::behave` passes it.
    behaviour::set(&unsafe { CStr::from_ptr(text) }.to_string_lossy());
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetVersion() -> usize {
    behaviour::current().version
}
