//! The wait for events, in which a module spends its life. Used by `hosted`, `relayed` and
//! `worker`.

use std::mem::MaybeUninit;

use wasip1::{
    Errno, Event, Fd, Subscription, SubscriptionClock, SubscriptionFdReadwrite, SubscriptionU,
    SubscriptionUU,
};
use watm_stream::{Needs, Ready};

use crate::descriptor::{Descriptor, retry};

/// The most subscriptions: the control pipe, two streams both ways, and the clock.
const MOST: usize = 6;

/// The result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The host has cancelled.
    Cancelled,
    /// These streams are ready.
    Ready(Ready),
    TimedOut,
}

/// The identities of events.
const CONTROL: u64 = 0;
const NETWORK: u64 = 1;
const APPLICATION: u64 = 2;
const CLOCK: u64 = 3;

/// Waits for one of `needs`, for a cancellation if there is a control pipe, and for `timeout`
/// nanoseconds if there is one.
pub fn wait(
    needs: Needs,
    network: &Descriptor,
    application: &Descriptor,
    control: Option<&Descriptor>,
    timeout: Option<u64>,
) -> Result<Woken, Errno> {
    let mut subscriptions = [const { MaybeUninit::<Subscription>::uninit() }; MOST];
    let mut count = 0;
    let mut subscribe = |subscription: Subscription| {
        subscriptions[count].write(subscription);
        count += 1;
    };
    if let Some(control) = control {
        subscribe(readable(CONTROL, control.number()));
    }
    if needs.network_read {
        subscribe(readable(NETWORK, network.number()));
    }
    if needs.network_write {
        subscribe(writable(NETWORK, network.number()));
    }
    if needs.application_read {
        subscribe(readable(APPLICATION, application.number()));
    }
    if needs.application_write {
        subscribe(writable(APPLICATION, application.number()));
    }
    if let Some(timeout) = timeout {
        subscribe(after(timeout));
    }
    let mut events = [const { MaybeUninit::<Event>::uninit() }; MOST];
    // SAFETY: the first `count` subscriptions are initialized, and there is room for as many
    // events.
    let happened = retry(|| unsafe {
        wasip1::poll_oneoff(
            subscriptions.as_ptr().cast(),
            events.as_mut_ptr().cast(),
            count,
        )
    })?;
    let mut woken = Woken::TimedOut;
    let mut ready = Ready::default();
    for event in &events[..happened.min(count)] {
        // SAFETY: the host has written this many events, no more than were requested.
        let event = unsafe { event.assume_init_ref() };
        match event.userdata {
            // A broken pipe means the same.
            CONTROL => return Ok(Woken::Cancelled),
            CLOCK => continue,
            _ if event.error != wasip1::ERRNO_SUCCESS => return Err(event.error),
            NETWORK => ready.network = true,
            _ => ready.application = true,
        }
        woken = Woken::Ready(ready);
    }
    Ok(woken)
}

/// The nanoseconds on a monotonic clock.
pub fn now() -> u64 {
    // SAFETY: the call takes no memory. In a host without the clock, waits end at once.
    unsafe { wasip1::clock_time_get(wasip1::CLOCKID_MONOTONIC, 1_000_000) }.unwrap_or(u64::MAX)
}

fn readable(userdata: u64, file_descriptor: Fd) -> Subscription {
    Subscription {
        userdata,
        u: SubscriptionU {
            tag: wasip1::EVENTTYPE_FD_READ.raw(),
            u: SubscriptionUU {
                fd_read: SubscriptionFdReadwrite { file_descriptor },
            },
        },
    }
}

fn writable(userdata: u64, file_descriptor: Fd) -> Subscription {
    Subscription {
        userdata,
        u: SubscriptionU {
            tag: wasip1::EVENTTYPE_FD_WRITE.raw(),
            u: SubscriptionUU {
                fd_write: SubscriptionFdReadwrite { file_descriptor },
            },
        },
    }
}

fn after(timeout: u64) -> Subscription {
    Subscription {
        userdata: CLOCK,
        u: SubscriptionU {
            tag: wasip1::EVENTTYPE_CLOCK.raw(),
            u: SubscriptionUU {
                clock: SubscriptionClock {
                    id: wasip1::CLOCKID_MONOTONIC,
                    timeout,
                    precision: 0,
                    flags: 0,
                },
            },
        },
    }
}
