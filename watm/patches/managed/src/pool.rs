//! The pool that lends memory to rings, and keeps some of it for the next one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

/// The source of [`Elastic`](crate::Elastic) memory.
pub trait Lender<T> {
    /// Lends memory of exactly `len` elements, with any content.
    fn lend(&self, len: usize) -> Vec<T>;

    /// Exchanges memory for `len` elements, at least twice as many. They begin with the content of
    /// `memory` twice; the rest is arbitrary.
    fn exchange(&self, memory: Vec<T>, len: usize) -> Vec<T>;

    /// Takes back memory that was lent.
    fn take_back(&self, memory: Vec<T>);
}

/// A lender that keeps some of the returned memory, by size, for reuse.
pub struct Pool<T> {
    idle: RefCell<BTreeMap<usize, Vec<Vec<T>>>>,
    kept: Cell<usize>,
    keep: usize,
    lent: Cell<usize>,
}

impl<T> Pool<T> {
    /// Makes a pool that keeps at most `keep` unused elements.
    pub fn new(keep: usize) -> Self {
        Pool {
            idle: RefCell::default(),
            kept: Cell::new(0),
            keep,
            lent: Cell::new(0),
        }
    }

    /// The number of elements lent now.
    pub fn lent(&self) -> usize {
        self.lent.get()
    }

    /// The number of unused elements kept now.
    pub fn kept(&self) -> usize {
        self.kept.get()
    }
}

impl<T: Copy + Default> Lender<T> for Pool<T> {
    fn lend(&self, len: usize) -> Vec<T> {
        self.lent.set(self.lent.get() + len);
        match self.idle.borrow_mut().get_mut(&len).and_then(Vec::pop) {
            Some(memory) => {
                self.kept.set(self.kept.get() - len);
                memory
            }
            None => vec![T::default(); len],
        }
    }

    fn exchange(&self, memory: Vec<T>, len: usize) -> Vec<T> {
        let mut larger = self.lend(len);
        let (first, rest) = larger.split_at_mut(memory.len());
        first.copy_from_slice(&memory);
        rest[..memory.len()].copy_from_slice(&memory);
        self.take_back(memory);
        larger
    }

    fn take_back(&self, mut memory: Vec<T>) {
        let len = memory.len();
        if cfg!(debug_assertions) {
            // Overwrite the content, so that a ring that releases memory too early does not find
            // its bytes by luck.
            memory.fill(T::default());
        }
        self.lent.set(self.lent.get() - len);
        if self.kept.get() + len <= self.keep {
            self.kept.set(self.kept.get() + len);
            self.idle.borrow_mut().entry(len).or_default().push(memory);
        }
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("lent", &self.lent)
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}
