use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

/// Where [`Elastic`](crate::Elastic) memory comes from.
pub trait Lender<T> {
    /// Memory of exactly `len` elements, with any content.
    fn lend(&self, len: usize) -> Vec<T>;

    /// Exchange memory for `len` elements, at least twice as many. They begin with the
    /// content of `memory` twice over; the rest is anything.
    fn exchange(&self, memory: Vec<T>, len: usize) -> Vec<T>;

    /// Take memory back that was lent.
    fn take_back(&self, memory: Vec<T>);
}

/// A lender that keeps some of what comes back, by size, for the next one.
pub struct Pool<T> {
    idle: RefCell<BTreeMap<usize, Vec<Vec<T>>>>,
    kept: Cell<usize>,
    keep: usize,
    lent: Cell<usize>,
}

impl<T> Pool<T> {
    /// A pool that keeps at most `keep` elements that nobody uses.
    pub fn new(keep: usize) -> Self {
        Pool {
            idle: RefCell::default(),
            kept: Cell::new(0),
            keep,
            lent: Cell::new(0),
        }
    }

    /// Elements lent now.
    pub fn lent(&self) -> usize {
        self.lent.get()
    }

    /// Elements kept now that nobody uses.
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
            // A ring that lets go too early shall not find its bytes again by luck.
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
