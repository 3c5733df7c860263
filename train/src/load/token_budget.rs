use std::sync::Arc;

use burn::data::dataloader::BatchStrategy;

/// Batches of sequences that are padded to the longest of them, with at most so many tokens each, padding included.
///
/// A sequence that alone has more is a batch of its own. Sequences stay in the order in which they come: batches are
/// fuller when those of similar length are neighbours.
///
/// With several ranks, each has such a batch in a step: for the same step on any number of ranks, divide the tokens of a step by the
/// number of ranks. A mean over targets needs their number as its weight, because sequences have different numbers.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::data::dataloader::BatchStrategy;
/// use gpu_tuned::load::TokenBudget;
///
/// let mut strategy = TokenBudget::new(12, |sentence: &Vec<u32>| sentence.len());
/// for length in [3, 4, 4, 5] {
///     strategy.add(vec![0; length]);
/// }
/// assert_eq!(strategy.batch(false).map(|batch| batch.len()), Some(3)); // 3 x 4 tokens; with the next it were 4 x 5
/// assert_eq!(strategy.batch(false), None);
/// assert_eq!(strategy.batch(true).map(|batch| batch.len()), Some(1));
/// ```
pub struct TokenBudget<I> {
    tokens: usize,
    length: Arc<dyn Fn(&I) -> usize + Send + Sync>,
    waiting: Vec<I>,
    /// Items of the next batch, among those that were read.
    joined: usize,
    /// Tokens of the longest of those, at least one.
    longest: usize,
}

impl<I> TokenBudget<I> {
    /// At most `tokens` in a batch, of items with `length` tokens. An item without tokens counts as one of one token.
    pub fn new(tokens: usize, length: impl Fn(&I) -> usize + Send + Sync + 'static) -> Self {
        Self { tokens, length: Arc::new(length), waiting: Vec::new(), joined: 0, longest: 1 }
    }

    /// Joins what waits to the next batch; whether no other could join it.
    fn join(&mut self) -> bool {
        for item in &self.waiting[self.joined..] {
            let longest = self.longest.max((self.length)(item));
            if self.joined > 0 && longest.saturating_mul(self.joined + 1) > self.tokens {
                return true;
            }
            (self.joined, self.longest) = (self.joined + 1, longest);
        }
        self.longest.saturating_mul(self.joined + 1) > self.tokens
    }
}

impl<I: Send + Sync + 'static> BatchStrategy<I> for TokenBudget<I> {
    fn add(&mut self, item: I) {
        self.waiting.push(item);
    }

    fn batch(&mut self, force: bool) -> Option<Vec<I>> {
        let is_full = self.join();
        let count = if is_full || force { std::mem::take(&mut self.joined) } else { 0 };
        (count > 0).then(|| {
            self.longest = 1;
            self.waiting.drain(..count).collect()
        })
    }

    fn clone_dyn(&self) -> Box<dyn BatchStrategy<I>> {
        Box::new(Self {
            tokens: self.tokens,
            length: Arc::clone(&self.length),
            waiting: Vec::new(),
            joined: 0,
            longest: 1,
        })
    }

    fn batch_size(&self) -> Option<usize> {
        None
    }
}
