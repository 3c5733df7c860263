//! cuBLASLt's C functions.
//!
//! Every function is called under cuBLASLt's contract: out-pointers are valid for writes, and values of attributes for
//! reads of their sizes. Objects are numbers and checked.
#![allow(non_snake_case, reason = "the names are cuBLASLt's")]

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::behaviour;
use crate::objects::{
    self, ALIGNMENT, Description, IN_COMPUTE_TYPE, INTERNAL_ERROR, INVALID_VALUE, Layout, NOT_SUPPORTED, Object,
    Preference, WORKSPACE_BYTES,
};
use crate::product::Product;

/// An object: its address is a number.
type Opaque = *mut c_void;

/// `cublasLtMatmulAlgo_t`.
type Algorithm = [u64; 8];

/// First number of an algorithm of this library.
const ALGORITHM: u64 = 0xfa4e;

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
struct Heuristic {
    algorithm: Algorithm,
    workspace_bytes: usize,
    status: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// Status of a call, unless the function is to fail. Wrong arguments count as a mistake.
fn call(name: &str, work: impl FnOnce() -> Result<(), c_int>) -> c_int {
    if behaviour::current().fails.as_deref() == Some(name) {
        return INTERNAL_ERROR;
    }
    match work() {
        Ok(()) => 0,
        Err(status) => {
            if status == INVALID_VALUE {
                objects::add_mistake();
            }
            status
        }
    }
}

/// # Safety
/// `out` is valid for a write.
unsafe fn create(out: *mut Opaque, object: Object) {
    // SAFETY: by this function's contract.
    unsafe { out.write(std::ptr::without_provenance_mut(objects::create(object))) };
}

/// # Safety
/// `value` is valid for reads of so many bytes.
unsafe fn set(object: Opaque, attribute: c_int, value: *const c_void, bytes: usize) -> Result<(), c_int> {
    if value.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by this function's contract.
    let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), bytes) };
    objects::change(object.addr(), |object| object.set(attribute, bytes))
}

macro_rules! getters {
    ($($name:ident -> $kind:ident($type:ty);)*) => {$(
        fn $name(object: Opaque) -> Result<$type, c_int> {
            match objects::get(object.addr())? {
                Object::$kind(it) => Ok(it),
                _ => Err(INVALID_VALUE),
            }
        }
    )*};
}

getters! {
    description -> Description(Description);
    layout -> Layout(Layout);
    preference -> Preference(Preference);
}

fn check_handle(handle: Opaque) -> Result<(), c_int> {
    match objects::get(handle.addr())? {
        Object::Handle => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fake_cublaslt_behave(text: *const c_char) {
    // SAFETY: a string, as `Fake::behave` passes it.
    behaviour::set(&unsafe { CStr::from_ptr(text) }.to_string_lossy());
}

#[unsafe(no_mangle)]
extern "C" fn fake_cublaslt_created() -> usize {
    objects::counts()[0]
}

#[unsafe(no_mangle)]
extern "C" fn fake_cublaslt_alive() -> usize {
    objects::counts()[1]
}

#[unsafe(no_mangle)]
extern "C" fn fake_cublaslt_mistakes() -> usize {
    objects::counts()[2]
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    behaviour::current().version
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtCreate(out: *mut Opaque) -> c_int {
    call("cublasLtCreate", || {
        // SAFETY: by cuBLASLt's contract.
        unsafe { create(out, Object::Handle) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtDestroy(handle: Opaque) -> c_int {
    call("cublasLtDestroy", || objects::destroy(handle.addr(), |object| matches!(object, Object::Handle)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescCreate(out: *mut Opaque, compute_type: c_int, scale_type: c_int) -> c_int {
    call("cublasLtMatmulDescCreate", || {
        let tf32 = match (compute_type, scale_type) {
            (68, 0) => false,
            (77, 0) => true,
            _ => return Err(INVALID_VALUE),
        };
        let (transposed, vector, auxiliary) = ([false; 2], 0, 0);
        let description = Description { tf32, transposed, epilogue: 1, vector, auxiliary, auxiliary_leading: 0 };
        // SAFETY: by cuBLASLt's contract.
        unsafe { create(out, Object::Description(description)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulDescDestroy(object: Opaque) -> c_int {
    call("cublasLtMatmulDescDestroy", || {
        objects::destroy(object.addr(), |object| matches!(object, Object::Description(_)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    object: Opaque,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: by cuBLASLt's contract.
    call("cublasLtMatmulDescSetAttribute", || {
        description(object).and_then(|_| unsafe { set(object, attribute, value, bytes) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    out: *mut Opaque,
    data_type: c_int,
    rows: u64,
    columns: u64,
    leading: i64,
) -> c_int {
    call("cublasLtMatrixLayoutCreate", || {
        let [rows, columns] = [rows, columns].map(|size| i64::try_from(size).unwrap_or(0));
        let layout = Layout { data_type, rows, columns, leading, batches: 1, batch_stride: 0 };
        // SAFETY: by cuBLASLt's contract.
        unsafe { create(out, Object::Layout(layout)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutDestroy(object: Opaque) -> c_int {
    call("cublasLtMatrixLayoutDestroy", || {
        objects::destroy(object.addr(), |object| matches!(object, Object::Layout(_)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    object: Opaque,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: by cuBLASLt's contract.
    call("cublasLtMatrixLayoutSetAttribute", || {
        layout(object).and_then(|_| unsafe { set(object, attribute, value, bytes) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceCreate(out: *mut Opaque) -> c_int {
    call("cublasLtMatmulPreferenceCreate", || {
        // SAFETY: by cuBLASLt's contract.
        unsafe { create(out, Object::Preference(Preference::default())) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceDestroy(object: Opaque) -> c_int {
    call("cublasLtMatmulPreferenceDestroy", || {
        objects::destroy(object.addr(), |object| matches!(object, Object::Preference(_)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    object: Opaque,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: by cuBLASLt's contract.
    call("cublasLtMatmulPreferenceSetAttribute", || {
        preference(object).and_then(|_| unsafe { set(object, attribute, value, bytes) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    handle: Opaque,
    operation: Opaque,
    a: Opaque,
    b: Opaque,
    c: Opaque,
    d: Opaque,
    wished: Opaque,
    requested: c_int,
    results: *mut Heuristic,
    returned: *mut c_int,
) -> c_int {
    call("cublasLtMatmulAlgoGetHeuristic", || {
        check_handle(handle)?;
        let wished = preference(wished)?;
        if requested < 1 || results.is_null() || returned.is_null() {
            return Err(INVALID_VALUE);
        }
        Product::new(description(operation)?, [layout(a)?, layout(b)?, layout(c)?, layout(d)?])?;
        if !behaviour::current().has_algorithms {
            return Err(NOT_SUPPORTED);
        }
        if wished.reductions != IN_COMPUTE_TYPE {
            // The library would add parts of sums in 16 bits.
            return Err(INVALID_VALUE);
        }
        let workspace_bytes = if wished.workspace_bytes >= WORKSPACE_BYTES as u64 { WORKSPACE_BYTES } else { 0 };
        let [a, b, c, d] = wished.alignments.map(|bytes| u64::from(bytes.min(ALIGNMENT)));
        let algorithm = [ALGORITHM, a, b, c, d, workspace_bytes as u64, 0, 0];
        let best = Heuristic { algorithm, workspace_bytes, status: 0, waves: 1.0, reserved: [0; 4] };
        // SAFETY: by cuBLASLt's contract, there is room for the results that are asked for.
        unsafe {
            results.write(best);
            returned.write(1);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmul(
    handle: Opaque,
    operation: Opaque,
    alpha: *const c_void,
    a: *const c_void,
    a_layout: Opaque,
    b: *const c_void,
    b_layout: Opaque,
    beta: *const c_void,
    c: *const c_void,
    c_layout: Opaque,
    d: *mut c_void,
    d_layout: Opaque,
    algorithm: *const Algorithm,
    workspace: *mut c_void,
    workspace_bytes: usize,
    _stream: *mut c_void,
) -> c_int {
    call("cublasLtMatmul", || {
        check_handle(handle)?;
        let layouts = [layout(a_layout)?, layout(b_layout)?, layout(c_layout)?, layout(d_layout)?];
        let product = Product::new(description(operation)?, layouts)?;
        if alpha.is_null() || beta.is_null() || algorithm.is_null() || !std::ptr::eq(c, d) {
            return Err(INVALID_VALUE);
        }
        // SAFETY: by cuBLASLt's contract.
        let (algorithm, factors) =
            unsafe { (algorithm.read(), [alpha.cast::<f32>().read(), beta.cast::<f32>().read()]) };
        let [known, alignments @ .., needed, _, _] = algorithm;
        let addresses = [a, b, c, d.cast_const()].map(|address| address.addr() as u64);
        let is_aligned =
            addresses.iter().zip(alignments).all(|(address, bytes)| *address != 0 && address.is_multiple_of(bytes));
        let is_vector_aligned = product.vector().is_none_or(|address| address.is_multiple_of(product.bytes()));
        let is_auxiliary_aligned =
            product.auxiliary().is_none_or(|address| address.is_multiple_of(u64::from(ALIGNMENT)));
        let has_workspace = workspace_bytes as u64 >= needed && (needed == 0 || !workspace.is_null());
        if known != ALGORITHM || !is_aligned || !is_vector_aligned || !is_auxiliary_aligned || !has_workspace {
            return Err(INVALID_VALUE);
        }
        // SAFETY: by cuBLASLt's contract; so many bytes are checked above.
        unsafe {
            workspace.cast::<u8>().write_bytes(0xa5, needed as usize);
            product.compute(factors, [a, b], d);
        }
        Ok(())
    })
}
