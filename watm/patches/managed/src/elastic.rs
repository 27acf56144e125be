//! Memory for rings that exists only while a ring holds something. The network stack's TCP buffers
//! use it.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use crate::Lender;

/// Memory for a ring, which exists only while the ring holds something.
///
/// It always has a length, which is the capacity of the ring. The memory is borrowed from a
/// [`Lender`] when the ring first writes, and is [released](Handle::release_read) when the owner of
/// the [`Handle`] declares the ring empty.
///
/// The handle cannot reach the memory, which belongs to the ring. It leaves an order, which is
/// carried out when the ring next indexes its memory mutably. Every command therefore takes a
/// closure that makes the ring do that without moving a byte, and the order lasts only as long as
/// the closure.
pub struct Elastic<T> {
    /// The memory: empty, or as long as the ring's capacity.
    memory: Vec<T>,
    control: Rc<Control>,
    lender: Rc<dyn Lender<T>>,
}

/// Controls an [`Elastic`] that a ring owns.
#[derive(Debug, Clone)]
pub struct Handle {
    control: Rc<Control>,
}

#[derive(Debug)]
struct Control {
    len: Cell<usize>,
    held: Cell<usize>,
    order: Cell<Order>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    None,
    /// Grow to this length, and keep the content.
    Grow(usize),
    /// Release the memory, and take this length if the ring's position allows it.
    Release(usize),
    /// The same, and report no room at all until it is done.
    ReleaseHidden(usize),
}

impl<T> Elastic<T> {
    /// Makes memory of `len` elements, none of which exists yet, and its handle.
    pub fn new(len: usize, lender: Rc<dyn Lender<T>>) -> (Elastic<T>, Handle) {
        let control = Rc::new(Control {
            len: Cell::new(len),
            held: Cell::new(0),
            order: Cell::new(Order::None),
        });
        let handle = Handle {
            control: Rc::clone(&control),
        };
        let elastic = Elastic {
            memory: Vec::new(),
            control,
            lender,
        };
        (elastic, handle)
    }

    pub(crate) fn len(&self) -> usize {
        match self.control.order.get() {
            Order::ReleaseHidden(_) => 0,
            _ => self.control.len.get(),
        }
    }

    pub(crate) fn memory(&self) -> &[T] {
        &self.memory
    }

    pub(crate) fn memory_mut(&mut self) -> &mut [T] {
        if self.memory.is_empty() {
            let len = self.control.len.get();
            self.memory = self.lender.lend(len);
            self.control.held.set(len);
        }
        &mut self.memory
    }

    /// Carries out the order, if there is one; `range` is the range that the ring indexes.
    pub(crate) fn obey(&mut self, range: &Range<usize>) {
        match self.control.order.get() {
            Order::None => return,
            Order::Grow(len) => self.grow(len),
            Order::Release(len) | Order::ReleaseHidden(len) => {
                if !range.is_empty() {
                    return;
                }
                self.give_back();
                // The ring continues at this position, which must exist.
                if range.start < len {
                    self.control.len.set(len);
                }
            }
        }
        self.control.order.set(Order::None);
    }

    /// A ring of capacity C keeps its `i`th byte at `(start + i) mod C`, where `start` and
    /// `i` are less than C. In a ring twice as long or longer that byte belongs at
    /// `start + i`, so it is right in the first half if it did not wrap, and C further if it
    /// did. A copy of the first C elements behind themselves serves both, wherever the ring
    /// starts, and out-of-order bytes too.
    fn grow(&mut self, len: usize) {
        if !self.memory.is_empty() {
            let memory = std::mem::take(&mut self.memory);
            self.memory = self.lender.exchange(memory, len);
            self.control.held.set(len);
        }
        self.control.len.set(len);
    }

    fn give_back(&mut self) {
        if !self.memory.is_empty() {
            self.lender.take_back(std::mem::take(&mut self.memory));
            self.control.held.set(0);
        }
    }
}

impl<T> Drop for Elastic<T> {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl<T> fmt::Debug for Elastic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Elastic").field(&self.control).finish()
    }
}

impl Handle {
    /// The capacity.
    #[allow(clippy::len_without_is_empty)] // the handle does not know what the ring holds
    pub fn len(&self) -> usize {
        self.control.len.get()
    }

    /// The number of elements that exist for the ring now: 0 or the capacity.
    pub fn held(&self) -> usize {
        self.control.held.get()
    }

    /// Set the capacity of an unused ring. Returns false if it holds memory.
    pub fn set_unused_len(&self, len: usize) -> bool {
        let unused = self.held() == 0;
        if unused {
            self.control.len.set(len);
        }
        unused
    }

    /// Grow to `len`, at least twice the capacity, with the content. `touch` must make the ring
    /// enqueue or dequeue nothing. Returns false if it did not touch the memory.
    pub fn grow(&self, len: usize, touch: impl FnOnce()) -> bool {
        assert!(len / 2 >= self.len(), "a ring grows at least twofold");
        self.order(Order::Grow(len), touch)
    }

    /// Release the memory of a ring that holds nothing, neither in order nor out of order. `touch`
    /// must make it dequeue from the empty ring. The capacity becomes `len`, at most the present
    /// one, unless the ring's position lies beyond.
    pub fn release_read(&self, len: usize, touch: impl FnOnce()) -> bool {
        self.order(Order::Release(len.min(self.len())), touch)
    }

    /// Release the memory of an empty ring. `touch` must make it enqueue nothing, with
    /// `enqueue_many_with`. The capacity becomes `len`, at most the present one.
    pub fn release_write(&self, len: usize, touch: impl FnOnce()) -> bool {
        self.order(Order::ReleaseHidden(len.min(self.len())), touch)
    }

    fn order(&self, order: Order, touch: impl FnOnce()) -> bool {
        self.control.order.set(order);
        touch();
        self.control.order.replace(Order::None) == Order::None
    }
}
