//! Type parameters, lifetimes, const parameters and where clauses.

use core::fmt::Debug;
use core::marker::PhantomData;
use std::borrow::Cow;
use std::collections::HashMap;

use gpu_tuned::gpu_tuned;

shapes! { generic_structs_have_the_planned_values:
    OneType<String> => { struct OneType<T> { #[tuned] batch_size: usize, value: T } }
    BoundInline<u8> => { struct BoundInline<T: Clone + Debug> { value: T, #[tuned] batch_size: usize } }
    BoundInWhere<u8> => { struct BoundInWhere<T> where T: Clone + Debug { #[tuned] batch_size: usize, value: Vec<T> } }
    DefaultType => { struct DefaultType<T = u8> { #[tuned] batch_size: usize, value: Option<T> } }
    Lifetime<'static> => { struct Lifetime<'a> { #[tuned] batch_size: usize, name: &'a str } }
    Lifetimes<'static, 'static, u8> => {
        struct Lifetimes<'long: 'short, 'short, T: 'short> {
            #[tuned] batch_size: usize,
            long: &'long str,
            short: Option<&'short T>,
        }
    }
    ConstParameter<3> => {
        struct ConstParameter<const N: usize> { #[tuned] batch_size: usize, #[tuned(default = [0.5; N])] rates: [f32; N] }
    }
    ConstDefault => { struct ConstDefault<const ON: bool = true> { #[tuned] batch_size: usize } }
    Phantom<str> => { struct Phantom<T: ?Sized> { #[tuned] batch_size: usize, marker: PhantomData<T> } }
    HigherRanked<fn(&str) -> usize> => {
        struct HigherRanked<F> where F: for<'a> Fn(&'a str) -> usize {
            #[tuned] batch_size: usize,
            #[tuned(default = None)] tokenize: Option<F>,
        }
    }
    Associated<std::vec::IntoIter<u8>> => {
        struct Associated<I: Iterator> where I::Item: Debug {
            #[tuned] batch_size: usize,
            first: Option<I::Item>,
            #[tuned(default = None)] rest: Option<I>,
        }
    }
    Many<'static, 'static, u8> => {
        struct Many<'a, 'b: 'a, K, V: Default = u8, const N: usize = 2> where K: Debug, V: Debug + 'b {
            #[tuned] batch_size: usize,
            map: HashMap<K, V>,
            name: Cow<'a, str>,
            other: Option<&'b V>,
            sizes: [u8; 4],
            #[tuned(default = [1; N])] counts: [usize; N],
        }
    }
    BehindConditions<u8> => {
        struct BehindConditions<T> {
            #[tuned] batch_size: usize,
            value: T,
            #[cfg(any())] missing: Missing<T>,
            #[cfg(any())] too: Option<Missing<T>>,
            #[cfg_attr(all(), cfg(any()))] absent: Absent<T>,
            #[cfg(all())] there: Vec<T>,
        }
    }
    Nested<u8> => { struct Nested<T> { #[tuned] batch_size: usize, inner: OneType<T> } }
    ParameterNamedAsOurs<u8, u16> => {
        struct ParameterNamedAsOurs<Settings, Option> { #[tuned] batch_size: usize, settings: Settings, option: Option }
    }
    TrailingCommas<u8> => { struct TrailingCommas<T: Debug,> where T: Clone +, { #[tuned] batch_size: usize, value: T } }
    EmptyWhere<u8> => { struct EmptyWhere<T> where { #[tuned] batch_size: usize, value: T } }
    SelfBound<u8> => { struct SelfBound<T> where Self: Sized, T: Debug { #[tuned] batch_size: usize, value: T } }
}

shapes! { generic_structs_have_dimensions (transformer(vocab = 100, seq = 16), global_batch = 64, target = "h200"):
    GenericDims<u8> => {
        struct GenericDims<M> {
            #[tuned(dim = layers, default = 2)] layers: usize,
            #[tuned(dim = d_model, default = 32)] width: u32,
            #[tuned] batch_size: usize,
            model: M,
        }
    }
}

#[test]
fn defaults_see_const_parameters() {
    assert_eq!(ConstParameter::<3>::default().rates.map(f32::to_bits), [0.5_f32.to_bits(); 3]);
}
