//! Libraries that are missing, old, incomplete or failing, and products that are refused.

use std::path::Path;

use fake_cublaslt::{Behaviour, Fake};
use gpu_tuned_kernels::cublaslt::{CublasError, CublasLt, Element, Epilogue, Handle, Memory, Operands, Product};
use gpu_tuned_kernels::find::LoadError;
use gpu_tuned_kernels::matrix::Matrices;

use crate::memory::{Buffer, Opened};

fn product() -> Product {
    let matrices = Matrices { leading: 4, transposed: false, batch_stride: 16 };
    Product {
        element: Element::F32 { tf32: false },
        rows: 4,
        inner: 4,
        columns: 4,
        batches: 2,
        left: matrices,
        right: matrices,
        output: matrices,
        epilogue: Epilogue::None,
        accumulate: false,
    }
}

fn failing(function: &str) -> Behaviour {
    Behaviour { fails: Some(function.to_owned()), ..Behaviour::default() }
}

#[test]
fn a_library_is_loaded_with_its_version() {
    let fake = Fake::new();
    let library = CublasLt::load(&fake.path()).expect("a library");
    assert_eq!((library.version(), library.path()), (130_100, &*fake.path()));
    assert_eq!(fake.counts().created, 0);
}

#[test]
fn a_missing_file_is_named() {
    let failure = CublasLt::load(Path::new("/nonexistent/libcublasLt.so.13")).expect_err("no file");
    assert!(matches!(failure, LoadError::Open { .. }), "{failure:?}");
    assert!(failure.to_string().starts_with("/nonexistent/libcublasLt.so.13 cannot be loaded: "), "{failure}");
}

#[test]
fn a_missing_function_is_named() {
    for function in ["cublasLtMatmul", "cublasLtGetVersion", "cublasLtMatmulPreferenceSetAttribute"] {
        let fake = Fake::without(function);
        let failure = CublasLt::load(&fake.path()).expect_err("a function is missing").to_string();
        assert!(failure.contains(function), "{failure}");
    }
}

#[test]
fn an_old_version_is_refused() {
    let fake = Fake::new();
    let _loaded = CublasLt::load(&fake.path()).expect("a library");
    fake.behave(&Behaviour { version: 111_103, ..Behaviour::default() });
    let failure = CublasLt::load(&fake.path()).expect_err("an old version");
    let expected = LoadError::Version { library: "cuBLASLt", path: fake.path(), found: 111_103, oldest: 120_000 };
    assert_eq!(failure, expected);
    fake.behave(&Behaviour { version: 120_000, ..Behaviour::default() });
    CublasLt::load(&fake.path()).expect("the oldest version");
}

#[test]
fn a_device_that_the_library_refuses_has_no_handle() {
    let opened = Opened::new();
    opened.fake.behave(&failing("cublasLtCreate"));
    let library = Box::leak(Box::new(CublasLt::load(&opened.fake.path()).expect("a library")));
    let failure = Handle::new(library).expect_err("no handle");
    assert_eq!(failure, CublasError::Call { call: "cublasLtCreate", status: 14 });
}

#[test]
fn each_call_that_fails_is_named_and_leaks_nothing() {
    for call in [
        "cublasLtMatmulDescCreate",
        "cublasLtMatmulDescSetAttribute",
        "cublasLtMatrixLayoutCreate",
        "cublasLtMatrixLayoutSetAttribute",
        "cublasLtMatmulPreferenceCreate",
        "cublasLtMatmulPreferenceSetAttribute",
        "cublasLtMatmulAlgoGetHeuristic",
    ] {
        let opened = Opened::new();
        opened.fake.behave(&failing(call));
        let failure = opened.handle.plan(product(), [256; 3]).expect_err("no plan");
        assert_eq!(failure, CublasError::Call { call, status: 14 });
        let counts = opened.close();
        assert_eq!((counts.alive, counts.mistakes), (0, 0), "{call}");
    }
}

#[test]
fn a_library_without_an_algorithm_has_no_plan() {
    let opened = Opened::new();
    opened.fake.behave(&Behaviour { has_algorithms: false, ..Behaviour::default() });
    assert_eq!(opened.handle.plan(product(), [256; 3]).err(), Some(CublasError::NoAlgorithm));
    // The fake computes no f16.
    opened.fake.behave(&Behaviour::default());
    let halves = Product { element: Element::F16, ..product() };
    assert_eq!(opened.handle.plan(halves, [256; 3]).err(), Some(CublasError::NoAlgorithm));
    assert_eq!(opened.close().alive, 0);
}

#[test]
fn products_that_the_library_would_compute_wrongly_are_refused() {
    let opened = Opened::new();
    let output = Matrices { transposed: true, ..product().output };
    for refused in [
        Product { batches: 0, ..product() },
        Product { inner: 0, ..product() },
        Product { batches: 1 << 32 | 1, ..product() },
        Product { output, ..product() },
        Product { epilogue: Epilogue::ColumnSums, ..product() },
        Product { epilogue: Epilogue::BiasGelu, ..product() },
        // The rows of GELU's input begin at multiples of 8 numbers.
        Product { epilogue: Epilogue::BiasGelu, batches: 1, ..product() },
    ] {
        assert_eq!(opened.handle.plan(refused, [256; 3]).err(), Some(CublasError::NoAlgorithm), "{refused:?}");
    }
    let counts = opened.close();
    assert_eq!((counts.alive, counts.created), (0, 1));
}

/// Buffers of [`product`] for one launch.
fn launched(
    opened: &Opened,
    product: Product,
    alignment: [u64; 3],
    change: impl FnOnce(&mut Operands),
) -> (Result<(), CublasError>, bool) {
    let plan = opened.handle.plan(product, alignment).expect("a plan");
    let [mut left, mut right, mut output] = [(); 3].map(|()| Buffer::new(product.element, 0, 33));
    let mut workspace = Buffer::of_bytes(plan.workspace_bytes());
    let mut operands = Operands {
        left: left.memory(32),
        right: right.memory(32),
        output: output.memory(32),
        vector: None,
        pre_activation: None,
        workspace: Some(workspace.memory(plan.workspace_bytes() / 2)),
    };
    change(&mut operands);
    // SAFETY: the memory is the host's, which the fake computes on, and lives.
    let launched = unsafe { plan.launch(operands, std::ptr::null_mut()) };
    (launched, !output.touched(33).is_empty())
}

#[test]
fn a_launch_that_fails_is_named_and_writes_nothing() {
    let opened = Opened::new();
    opened.fake.behave(&failing("cublasLtMatmul"));
    let (failure, is_written) = launched(&opened, product(), [256; 3], |_| {});
    assert_eq!(failure, Err(CublasError::Call { call: "cublasLtMatmul", status: 14 }));
    assert!(!is_written);
    opened.fake.behave(&Behaviour::default());
    assert_eq!(launched(&opened, product(), [256; 3], |_| {}), (Ok(()), true));
    assert_eq!(opened.close().alive, 0);
}

#[test]
fn a_missing_vector_matrix_or_workspace_is_refused() {
    let opened = Opened::new();
    let (failure, is_written) = launched(&opened, product(), [256; 3], |operands| operands.workspace = None);
    assert_eq!((failure, is_written), (Err(CublasError::TooLarge { needed: 1024, found: 0 }), false));
    let biased = Product { epilogue: Epilogue::Bias, ..product() };
    let (failure, is_written) = launched(&opened, biased, [256; 3], |_| {});
    assert_eq!((failure, is_written), (Err(CublasError::TooLarge { needed: 16, found: 0 }), false));
    let output = Matrices { leading: 8, ..biased.output };
    let gelu = Product { epilogue: Epilogue::BiasGelu, batches: 1, output, ..product() };
    let mut bias = Buffer::new(gelu.element, 0, 4);
    let vector = bias.memory(4);
    let (failure, is_written) = launched(&opened, gelu, [256; 3], |operands| operands.vector = Some(vector));
    assert_eq!((failure, is_written), (Err(CublasError::TooLarge { needed: 4 * (3 * 8 + 4), found: 0 }), false));
    assert_eq!(opened.close().mistakes, 0);
}

#[test]
fn an_address_that_is_less_aligned_than_planned_is_refused() {
    let opened = Opened::new();
    let shift = |memory: Memory| Memory { address: memory.address + 4, bytes: memory.bytes };
    let shifted = |operands: &mut Operands| operands.left = shift(operands.left);
    let (failure, is_written) = launched(&opened, product(), [256; 3], shifted);
    assert!(matches!(failure, Err(CublasError::Misaligned { alignment: 16, .. })), "{failure:?}");
    assert!(!is_written);
    let shifted = |operands: &mut Operands| operands.output = shift(operands.output);
    assert_eq!(launched(&opened, product(), [256, 256, 4], shifted), (Ok(()), true));
    assert_eq!(opened.close().mistakes, 0);
}
