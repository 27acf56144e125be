//! Signals of an event loop, which is Python's.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::Doorbell;
use crate::signals::Signals;

/// Two threads make one thing ready, each once, and a loop that waits for the bell handles it.
pub(crate) fn every_event_is_handled() {
    let signals = Signals::new(Doorbell::default());
    let signal = signals.signal();
    let events = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (waker, events) = (signal.waker(), events.clone());
            thread::spawn(move || {
                events.fetch_add(1, Ordering::Relaxed);
                waker.wake();
            })
        })
        .collect();
    while events.load(Ordering::Relaxed) < 2 {
        signals.doorbell.wait();
        let keys = signals.take();
        assert!(keys.len() <= 1, "a key is told once a call: {keys:?}");
    }
    for thread in threads {
        thread.join().expect("it does not panic");
    }
}

/// Two threads make a thing each ready, and neither takes the other's ring away.
pub(crate) fn every_signal_is_told() {
    let signals = Signals::new(Doorbell::default());
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let waker = signals.signal().waker();
            thread::spawn(move || waker.wake())
        })
        .collect();
    let mut told = Vec::new();
    while told.len() < 2 {
        signals.doorbell.wait();
        told.extend(signals.take());
    }
    for thread in threads {
        thread.join().expect("it does not panic");
    }
    told.sort_unstable();
    assert_eq!(told, [0, 1]);
}
