//! The slices under smoltcp's rings.

use std::ops::{Deref, DerefMut, Index, IndexMut, Range};

use crate::Elastic;

/// Exclusive access to a slice: on loan, or owned.
#[derive(Debug)]
pub enum ManagedSlice<'a, T> {
    /// Memory that another owner has lent.
    Borrowed(Loan<'a, T>),
    /// Owned memory, which can be extended.
    Owned(Vec<T>),
}

/// The lender of a [`ManagedSlice::Borrowed`].
#[derive(Debug)]
pub enum Loan<'a, T> {
    /// The owner of a slice, for as long as `'a`.
    Slice(&'a mut [T]),
    /// A pool, while the ring holds something.
    Elastic(Elastic<T>),
}

impl<T> ManagedSlice<'_, T> {
    /// The length. For elastic memory this is its capacity, whether the memory exists or not.
    #[allow(clippy::len_without_is_empty)] // `is_empty` would be the slice's, which means something else
    pub fn len(&self) -> usize {
        match self {
            ManagedSlice::Borrowed(Loan::Slice(slice)) => slice.len(),
            ManagedSlice::Borrowed(Loan::Elastic(elastic)) => elastic.len(),
            ManagedSlice::Owned(vec) => vec.len(),
        }
    }
}

impl<'a, T> From<&'a mut [T]> for ManagedSlice<'a, T> {
    fn from(slice: &'a mut [T]) -> Self {
        ManagedSlice::Borrowed(Loan::Slice(slice))
    }
}

impl<T, const N: usize> From<[T; N]> for ManagedSlice<'_, T> {
    fn from(array: [T; N]) -> Self {
        ManagedSlice::Owned(array.into())
    }
}

impl<T> From<Vec<T>> for ManagedSlice<'_, T> {
    fn from(vec: Vec<T>) -> Self {
        ManagedSlice::Owned(vec)
    }
}

impl<T> From<Elastic<T>> for ManagedSlice<'_, T> {
    fn from(elastic: Elastic<T>) -> Self {
        ManagedSlice::Borrowed(Loan::Elastic(elastic))
    }
}

/// The existing memory: none for an [`Elastic`] that was not written to.
impl<T> Deref for ManagedSlice<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            ManagedSlice::Borrowed(Loan::Slice(slice)) => slice,
            ManagedSlice::Borrowed(Loan::Elastic(elastic)) => elastic.memory(),
            ManagedSlice::Owned(vec) => vec,
        }
    }
}

/// All of the memory, allocated if necessary.
impl<T> DerefMut for ManagedSlice<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            ManagedSlice::Borrowed(Loan::Slice(slice)) => slice,
            ManagedSlice::Borrowed(Loan::Elastic(elastic)) => elastic.memory_mut(),
            ManagedSlice::Owned(vec) => vec,
        }
    }
}

impl<T> Index<usize> for ManagedSlice<'_, T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.deref()[index]
    }
}

impl<T> IndexMut<usize> for ManagedSlice<'_, T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.deref_mut()[index]
    }
}

/// An empty range needs no memory, wherever it lies. Rings index one when they are empty.
impl<T> Index<Range<usize>> for ManagedSlice<'_, T> {
    type Output = [T];

    fn index(&self, range: Range<usize>) -> &[T] {
        if range.is_empty() {
            return &[];
        }
        &self.deref()[range]
    }
}

/// Like reading. Elastic memory also carries out the order of its [`Handle`](crate::Handle).
impl<T> IndexMut<Range<usize>> for ManagedSlice<'_, T> {
    fn index_mut(&mut self, range: Range<usize>) -> &mut [T] {
        if let ManagedSlice::Borrowed(Loan::Elastic(elastic)) = self {
            elastic.obey(&range);
        }
        if range.is_empty() {
            return &mut [];
        }
        &mut self.deref_mut()[range]
    }
}
