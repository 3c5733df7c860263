use std::panic::catch_unwind;

use super::{Moment, is_out_of_memory, watched};

/// Message from an H200 without memory for the optimizer: a fused kernel of several outputs, one without an address.
const ONE_OF_SEVERAL: &str = "An error happened during execution
Caused by:
  Several failures at once
Caused by:
  The bytes were never written (failure #168866, still claiming 6 buffer(s))
  skipped `ElemwiseFuse`: it needed memory ManagedMemoryId { value: 277495 }, which carried the failure
  skipped `ReduceKernel`: it needed memory ManagedMemoryId { value: 277489 }, which carried the failure
  skipped `ElemwiseFuse`: it needed memory ManagedMemoryId { value: 277311 }, which carried the failure
  skipped `SliceKernel`: it needed memory ManagedMemoryId { value: 276482 }, which carried the failure
Caused by:
  An IO error happened
Caused by:
  couldn't find resource for that handle: Memory location was never initialized
No backtrace available
Asked at:
No backtrace available";

/// The same chain, with another root.
fn rooted(root: &str) -> String {
    ONE_OF_SEVERAL.replace("couldn't find resource for that handle: Memory location was never initialized", root)
}

#[test]
fn what_follows_from_an_allocation_that_failed_is_want_of_memory_and_other_roots_are_not() {
    let roots = [
        ("out of device memory allocating 4096 bytes", true),
        ("can't allocate buffer of size: 68719476736", true),
        (
            "couldn't find resource for that handle: memory ManagedMemoryId { value: 7 } was never allocated: the \
             reservation behind it failed",
            true,
        ),
        ("Can't allocate 4096 bytes: every page size the memory tracks still holds live allocations", true),
        ("couldn't find resource for that handle: Memory location points to a different allocation", false),
        ("couldn't find resource for that handle: Memory pool 3 doesn't exist", false),
        ("the storage holds no allocation for that handle: StorageId { value: 5 }", false),
        (
            "A launch error happened\nCaused by:\n  A compilation error happened during launch\nCaused by:\n  ptxas: syntax",
            false,
        ),
        ("The device is poisoned: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS", false),
        ("The work writing this buffer was torn down before it could say what went wrong", false),
        ("CUDA allocation error: DriverError(CUDA_ERROR_ILLEGAL_ADDRESS)", false),
    ];
    assert!(is_out_of_memory(ONE_OF_SEVERAL));
    for (root, expected) in roots {
        assert_eq!(is_out_of_memory(&rooted(root)), expected, "{root}");
    }
    // Allocations fail on a device that is lost, and what would have used them.
    let poison = "The device is poisoned\nCaused by:\n  cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS";
    assert!(!is_out_of_memory(&format!("{ONE_OF_SEVERAL}\n{poison}")));
}

#[test]
fn a_panic_for_want_of_memory_is_told_from_others() {
    let words = "Failed to read: out of device memory allocating 4096 bytes";
    let failure = watched::<()>(Moment::Forward, || panic!("{words}")).unwrap_err();
    assert_eq!((failure.moment, failure.message.as_str()), (Moment::Forward, words));
    assert!(catch_unwind(|| watched(Moment::Forward, || panic!("index out of bounds"))).is_err());
    assert_eq!(watched(Moment::Forward, || 7).unwrap(), 7);
}
