//! `poll_oneoff`: waiting for several events at once.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use wasmtime::{Caller, Linker};

use super::system::Clock;
use crate::end::Readiness;
use crate::errno::Errno;
use crate::fds::Resource;
use crate::guest::{bytes, bytes_mut, write_u32};
use crate::state::{Idle, State, answer, split};
use watm_policy::water_abi::PREVIEW1;

/// The most events that one call waits for: two directions of every descriptor, and clocks.
const MAX_SUBSCRIPTIONS: u32 = 1024;

/// Sizes of a `subscription` and an `event`.
const SUBSCRIPTION: u32 = 48;
const EVENT: u32 = 32;

/// Kinds of events (`eventtype`).
const CLOCK: u8 = 0;
const READ: u8 = 1;
const WRITE: u8 = 2;

/// Flag of a clock's subscription: its time is absolute, not relative to now.
const ABSOLUTE: u16 = 1;
/// Flag of an event: the other end is gone.
const HANGUP: u16 = 1;

struct Subscription {
    userdata: [u8; 8],
    kind: u8,
    wanted: Wanted,
}

enum Wanted {
    Read(i32),
    Write(i32),
    /// A clock's deadline. `None`: in more than 584 years.
    Time(Option<Instant>),
    /// A subscription that cannot be waited for.
    Never(Errno),
}

/// The result of a subscription.
struct Event {
    errno: Errno,
    ready: Readiness,
}

pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap_async(
        PREVIEW1,
        "poll_oneoff",
        |caller: Caller<'_, State>, (subscriptions, events, count, out): (u32, u32, u32, u32)| {
            Box::new(poll_oneoff(caller, subscriptions, events, count, out))
        },
    )?;
    Ok(())
}

/// Waits for events. Level-triggered: a ready event is reported again until the guest has used it
/// up.
async fn poll_oneoff(
    mut caller: Caller<'_, State>,
    subscriptions: u32,
    events: u32,
    count: u32,
    out: u32,
) -> wasmtime::Result<i32> {
    let (memory, state) = split(&mut caller)?;
    let parsed = parse(memory, state, subscriptions, count).and_then(|list| {
        bytes(memory, events, count * EVENT)?;
        bytes(memory, out, 4)?;
        Ok(list)
    });
    let list = match parsed {
        Ok(list) => list,
        Err(errno) => return Ok(answer(Err(errno))),
    };
    let mut idle = Idle::default();
    poll_fn(|cx| {
        let (memory, state) = split(&mut caller)?;
        let mut found = 0;
        let mut next: Option<Instant> = None;
        let now = Instant::now();
        for subscription in &list {
            let event = match poll(state, subscription, now, cx) {
                Poll::Ready(event) => event,
                Poll::Pending => {
                    if let Wanted::Time(Some(time)) = subscription.wanted {
                        next = Some(next.map_or(time, |next| next.min(time)));
                    }
                    continue;
                }
            };
            if let Err(errno) = write_event(memory, events + found * EVENT, subscription, &event) {
                return Poll::Ready(Ok(answer(Err(errno))));
            }
            found += 1;
        }
        if found == 0 {
            state.wait(cx);
            state.waits_instead();
            if let Some(next) = next
                && state.poll_timer(cx, next).is_ready()
            {
                // The deadline has passed since the check.
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        // Slows down a guest that polls again and again without using the answer.
        ready!(idle.poll(state, cx));
        Poll::Ready(Ok(answer(write_u32(memory, out, found))))
    })
    .await
}

fn parse(
    memory: &[u8],
    state: &State,
    pointer: u32,
    count: u32,
) -> Result<Vec<Subscription>, Errno> {
    if count == 0 || count > MAX_SUBSCRIPTIONS {
        return Err(Errno::INVAL);
    }
    let all = bytes(memory, pointer, count * SUBSCRIPTION)?;
    let one = all.chunks_exact(SUBSCRIPTION as usize);
    one.map(|bytes| parse_one(bytes, state)).collect()
}

/// Parses one subscription. `bytes` has the length of a subscription.
fn parse_one(bytes: &[u8], state: &State) -> Result<Subscription, Errno> {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        word
    };
    // Returns the lower half of a word of eight bytes.
    let half = |at| u64::from_le_bytes(word(at)) as u32;
    let kind = bytes[8];
    let wanted = match kind {
        CLOCK => {
            let timeout = Duration::from_nanos(u64::from_le_bytes(word(24)));
            let flags = u16::from_le_bytes([bytes[40], bytes[41]]);
            match Clock::of(half(16)) {
                Ok(clock) => Wanted::Time(due(state, clock, timeout, flags & ABSOLUTE != 0)),
                Err(errno) => Wanted::Never(errno),
            }
        }
        READ => Wanted::Read(half(16).cast_signed()),
        WRITE => Wanted::Write(half(16).cast_signed()),
        _ => return Err(Errno::INVAL),
    };
    Ok(Subscription {
        userdata: word(0),
        kind,
        wanted,
    })
}

fn due(state: &State, clock: Clock, timeout: Duration, absolute: bool) -> Option<Instant> {
    let now = Instant::now();
    if !absolute {
        return now.checked_add(timeout);
    }
    match clock {
        Clock::Monotonic => state.started.checked_add(timeout),
        Clock::Real => now.checked_add(timeout.saturating_sub(clock.now(state))),
    }
}

fn poll(
    state: &mut State,
    subscription: &Subscription,
    now: Instant,
    cx: &mut Context<'_>,
) -> Poll<Event> {
    let done = |ready| Event {
        errno: Errno(0),
        ready,
    };
    let failed = |errno| Event {
        errno,
        ready: Readiness::of(0),
    };
    let (fd, read) = match subscription.wanted {
        Wanted::Time(Some(time)) if time <= now => return Poll::Ready(done(Readiness::of(0))),
        Wanted::Time(_) => return Poll::Pending,
        Wanted::Never(errno) => return Poll::Ready(failed(errno)),
        Wanted::Read(fd) => (fd, true),
        Wanted::Write(fd) => (fd, false),
    };
    let descriptor = match state.fds.get(fd) {
        Ok(descriptor) => descriptor,
        Err(errno) => return Poll::Ready(failed(errno)),
    };
    match &mut descriptor.resource {
        Resource::End(end) if read => end.poll_readable(cx).map(done),
        Resource::End(end) => end.poll_writable(cx).map(done),
        Resource::File { content, offset } if read => {
            let rest = (content.len() as u64).saturating_sub(*offset);
            Poll::Ready(done(Readiness {
                bytes: rest,
                hangup: false,
            }))
        }
        Resource::Input if read => Poll::Ready(done(Readiness::HANGUP)),
        Resource::Output(_) if !read => Poll::Ready(done(Readiness::of(1))),
        _ => Poll::Ready(failed(Errno::BADF)),
    }
}

fn write_event(
    memory: &mut [u8],
    pointer: u32,
    subscription: &Subscription,
    event: &Event,
) -> Result<(), Errno> {
    let out = bytes_mut(memory, pointer, EVENT)?;
    out.fill(0);
    out[0..8].copy_from_slice(&subscription.userdata);
    out[8..10].copy_from_slice(&event.errno.0.to_le_bytes());
    out[10] = subscription.kind;
    out[16..24].copy_from_slice(&event.ready.bytes.to_le_bytes());
    if event.ready.hangup {
        out[24..26].copy_from_slice(&HANGUP.to_le_bytes());
    }
    Ok(())
}
