//! Tokens of a module's resources.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use crate::ready::{ReadyList, Token, WakeSlot};

/// Two threads make one resource ready, each once, and a driver handles what its list says. The
/// driver reads the results without a lock: only a wake-up orders the accesses.
pub(crate) fn every_event_is_handled() {
    let list = Arc::<ReadyList>::default();
    let token = Token::new(7, &list);
    let events = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (token, events) = (token.clone(), events.clone());
            thread::spawn(move || {
                events.fetch_add(1, Ordering::Relaxed);
                token.notify();
            })
        })
        .collect();
    let (mut tokens, mut calls) = (Vec::new(), 0);
    while events.load(Ordering::Relaxed) < 2 {
        block_on(poll_fn(|cx| list.poll_ready(cx)));
        list.take(&mut tokens);
        calls += 1;
        assert_eq!(tokens.len(), calls, "a token is listed once a call");
    }
    for thread in threads {
        thread.join().expect("it does not panic");
    }
    // The driver may have seen both events early, and no token is listed more often than notified.
    list.take(&mut tokens);
    assert!(tokens.len() <= 2, "{tokens:?}");
    assert!(list.is_empty());
}

/// A thread that leaves a waker and looks again is woken by later events.
pub(crate) fn who_registers_is_woken() {
    let slot = Arc::<WakeSlot>::default();
    let done = Arc::new(AtomicBool::new(false));
    let waker = Waker::from(slot.clone());
    let thread = {
        let done = done.clone();
        thread::spawn(move || {
            done.store(true, Ordering::Release);
            waker.wake_by_ref();
        })
    };
    block_on(poll_fn(|cx: &mut Context<'_>| {
        slot.register(cx);
        match done.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }));
    thread.join().expect("it does not panic");
}
