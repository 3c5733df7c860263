//! Fields that ranks compare.

use gpu_tuned::{Tuned, gpu_tuned};

/// Has no `Debug`.
#[derive(Clone, Default)]
struct Opaque;

#[gpu_tuned(transformer(d_model = 64, vocab = 100, seq = 16), global_batch = 64, target = "h200")]
#[derive(Clone)]
struct Compared<T, D: core::fmt::Debug> {
    #[tuned]
    batch_size: usize,
    #[tuned(dim = layers, default = 2)]
    depth: u64,
    #[tuned(default = 0.1)]
    rate: f64,
    #[tuned(per_rank, default = 7)]
    seed: u64,
    #[tuned(per_rank)]
    log: String,
    #[cfg_attr(unix, tuned(per_rank))]
    on_unix: u8,
    #[cfg_attr(not(unix), tuned(per_rank))]
    elsewhere: u8,
    #[cfg_attr(not(unix), tuned)]
    num_workers: usize,
    #[cfg(not(unix))]
    missing: u8,
    r#type: Option<bool>,
    opaque: Opaque,
    list: Vec<Opaque>,
    value: T,
    with_text: D,
    #[tuned(default = Opaque::default)]
    function: fn() -> Opaque,
    #[tuned(default = core::ptr::null())]
    pointer: *const u8,
}

/// A reference to a field of a packed struct does not compile.
#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Packed {
    #[tuned]
    batch_size: u64,
    flag: u8,
    count: u64,
}

/// Only tuned fields.
#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Clone)]
struct NothingElse {
    #[tuned]
    batch_size: usize,
}

#[test]
fn fields_with_a_text_are_compared_unless_they_are_planned_or_marked() {
    let config = Compared::<u8, u8>::default();
    assert_eq!((config.seed, config.rate.to_bits()), (7, 0.1_f64.to_bits()));
    let compared = config.compared();
    let compared: Vec<_> = compared.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let names = ["depth", "rate", "elsewhere", "num_workers", "r#type", "with_text"];
    let texts = ["2", "0.1", "0", "0", "None", "0"];
    #[cfg(unix)]
    assert_eq!(compared, names.into_iter().zip(texts).collect::<Vec<_>>());
    assert_eq!(Packed::default().compared(), []);
    assert_eq!(NothingElse::default().compared(), []);
}
