//! Readiness: the resources of a module that can make progress. `flow` and `net` wake the tokens,
//! and `driver` passes them to the module.

use std::mem;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The tokens that the next `process` will name. Each instance has its own list: resources of an
/// earlier instance push to that one's list, which nobody reads any more.
#[derive(Default)]
pub struct ReadyList {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    ready: Vec<Arc<Token>>,
    driver: Option<Waker>,
}

impl ReadyList {
    /// Returns ready once a token is. [`Token::wake`] wakes it.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.inner.lock().expect("no panic under this lock");
        if !inner.ready.is_empty() {
            return Poll::Ready(());
        }
        register(&mut inner.driver, cx);
        Poll::Pending
    }

    /// Returns true if no token is ready.
    pub fn is_empty(&self) -> bool {
        let inner = self.inner.lock().expect("no panic under this lock");
        inner.ready.is_empty()
    }

    /// Returns the number of ready tokens.
    pub fn len(&self) -> usize {
        let inner = self.inner.lock().expect("no panic under this lock");
        inner.ready.len()
    }

    /// Moves the ready tokens to the end of `tokens`; each can be woken again from now on. The
    /// caller sees everything that was done before one of them was woken.
    pub fn take(&self, tokens: &mut Vec<u64>) {
        let ready = mem::take(&mut self.inner.lock().expect("no panic under this lock").ready);
        for token in &ready {
            // A thread that found it queued made something ready before, and relies on it being
            // seen now.
            token.queued.swap(false, Ordering::AcqRel);
            // A token has no name until the module has chosen one.
            tokens.extend(token.value.get());
        }
    }

    fn push(&self, token: &Arc<Token>) {
        let driver = {
            let mut inner = self.inner.lock().expect("no panic under this lock");
            inner.ready.push(token.clone());
            inner.driver.take()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

/// The name that a module gave to one resource. Waking it adds it to the list, once.
pub struct Token {
    value: OnceLock<u64>,
    queued: AtomicBool,
    list: Arc<ReadyList>,
}

impl Token {
    /// Creates a token that puts `value` on a list when it is set.
    pub fn new(value: u64, list: &Arc<ReadyList>) -> Arc<Token> {
        let token = Token::unnamed(list);
        token.name(value);
        token
    }

    /// Makes a token for a resource that the host makes and the module names. It is not listed
    /// before.
    pub fn unnamed(list: &Arc<ReadyList>) -> Arc<Token> {
        Arc::new(Token {
            value: OnceLock::new(),
            queued: AtomicBool::new(false),
            list: list.clone(),
        })
    }

    /// Gives the token the name that the module chose. Later names are ignored.
    pub fn name(&self, value: u64) {
        let _ = self.value.set(value);
    }

    /// Lists the token in the next `process`.
    pub fn notify(self: &Arc<Token>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.list.push(self);
        }
    }
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

/// A waker for the task that waits at the time, in place of a token.
#[derive(Default)]
pub struct WakeSlot {
    waiting: Mutex<Option<Waker>>,
}

impl WakeSlot {
    /// Wakes `cx` the next time, and nobody else.
    pub fn register(&self, cx: &Context<'_>) {
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        register(&mut waiting, cx);
    }
}

impl Wake for WakeSlot {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waiting = {
            let mut waiting = self.waiting.lock().expect("no panic under this lock");
            waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// Wakers of the application, fired after the module's call has returned: one wake-up for
/// everything that a batch of datagrams brought.
#[derive(Default)]
pub struct WakeBatch {
    wakers: Vec<Waker>,
}

impl WakeBatch {
    /// The number of latest wakers that are compared. An application has one or two executors, so
    /// this is enough to keep one waker for each.
    const LOOK_BACK: usize = 8;

    /// Adds a waker, if there is one that is not in the batch yet.
    pub fn add(&mut self, waker: Option<Waker>) {
        let Some(waker) = waker else { return };
        let mut last = self.wakers.iter().rev().take(Self::LOOK_BACK);
        if !last.any(|known| known.will_wake(&waker)) {
            self.wakers.push(waker);
        }
    }

    /// Wakes all of them, and empties the batch.
    pub fn fire(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }
}

/// Stores the waker of `cx` in `slot`.
pub fn register(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}
