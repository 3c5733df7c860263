//! Type parameters, lifetimes, const parameters and where clauses.

use core::fmt::Debug;
use core::marker::PhantomData;
use std::borrow::Cow;
use std::collections::HashMap;

use gpu_tuned::gpu_tuned;

use super::check;

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct OneType<T> {
    #[tuned]
    batch_size: usize,
    value: T,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct BoundInline<T: Clone + Debug> {
    value: T,
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct BoundInWhere<T>
where
    T: Clone + Debug,
{
    #[tuned]
    batch_size: usize,
    value: Vec<T>,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct DefaultType<T = u8> {
    #[tuned]
    batch_size: usize,
    value: Option<T>,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct Lifetime<'a> {
    #[tuned]
    batch_size: usize,
    name: &'a str,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct Lifetimes<'long: 'short, 'short, T: 'short> {
    #[tuned]
    batch_size: usize,
    long: &'long str,
    short: Option<&'short T>,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct ConstParameter<const N: usize> {
    #[tuned]
    batch_size: usize,
    #[tuned(default = [0.5; N])]
    rates: [f32; N],
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct ConstDefault<const ON: bool = true> {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct Phantom<T: ?Sized> {
    #[tuned]
    batch_size: usize,
    marker: PhantomData<T>,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct HigherRanked<F>
where
    F: for<'a> Fn(&'a str) -> usize,
{
    #[tuned]
    batch_size: usize,
    #[tuned(default = None)]
    tokenize: Option<F>,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct Associated<I: Iterator>
where
    I::Item: Debug,
{
    #[tuned]
    batch_size: usize,
    first: Option<I::Item>,
    #[tuned(default = None)]
    rest: Option<I>,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct Many<'a, 'b: 'a, K, V: Default = u8, const N: usize = 2>
where
    K: Debug,
    V: Debug + 'b,
{
    #[tuned]
    batch_size: usize,
    map: HashMap<K, V>,
    name: Cow<'a, str>,
    other: Option<&'b V>,
    sizes: [u8; 4],
    #[tuned(default = [1; N])]
    counts: [usize; N],
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct Nested<T> {
    #[tuned]
    batch_size: usize,
    inner: OneType<T>,
}

#[gpu_tuned(transformer(vocab = 100, seq = 16), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct GenericDims<M> {
    #[tuned(dim = layers, default = 2)]
    layers: usize,
    #[tuned(dim = d_model, default = 32)]
    width: u32,
    #[tuned]
    batch_size: usize,
    model: M,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct ParameterNamedAsOurs<Settings, Option> {
    #[tuned]
    batch_size: usize,
    settings: Settings,
    option: Option,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
#[rustfmt::skip]
struct TrailingCommas<T: Debug,>
where
    T: Clone + ,
{
    #[tuned]
    batch_size: usize,
    value: T,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
#[rustfmt::skip]
struct EmptyWhere<T> where {
    #[tuned]
    batch_size: usize,
    value: T,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct SelfBound<T>
where
    Self: Sized,
    T: Debug,
{
    #[tuned]
    batch_size: usize,
    value: T,
}

#[test]
fn generic_structs_have_the_planned_values() {
    check::<OneType<String>>();
    check::<BoundInline<u8>>();
    check::<BoundInWhere<u8>>();
    check::<DefaultType>();
    check::<Lifetime<'static>>();
    check::<Lifetimes<'static, 'static, u8>>();
    check::<ConstParameter<3>>();
    check::<ConstDefault>();
    check::<Phantom<str>>();
    check::<HigherRanked<fn(&str) -> usize>>();
    check::<Associated<std::vec::IntoIter<u8>>>();
    check::<Many<'static, 'static, u8>>();
    check::<Nested<u8>>();
    check::<GenericDims<u8>>();
    check::<ParameterNamedAsOurs<u8, u16>>();
    check::<TrailingCommas<u8>>();
    check::<EmptyWhere<u8>>();
    check::<SelfBound<u8>>();
    assert_eq!(ConstParameter::<3>::default().rates.map(f32::to_bits), [0.5_f32.to_bits(); 3]);
}
