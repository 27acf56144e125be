//! The state of one guest, which `env` and `preview1` work on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;
use wasmtime::{AsContextMut, Caller, Extern, Memory};

use super::errno::Errno;
use super::fds::Descriptors;
use super::outside::Outside;
use watm_engine::cpu_meter::CpuMeter;
use watm_engine::limiter::Limiter;
use watm_engine::output::Output;

/// The number of empty answers in a row after which the guest is made to wait, because it asks
/// again and again in place of polling.
const MAX_IDLE_ANSWERS: u32 = 64;
/// The length of that wait, unless there is an answer before.
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// The state of one instance.
pub(super) struct State {
    pub(super) fds: Descriptors,
    pub(super) output: Output,
    pub(super) outside: Outside,
    pub(super) cpu: CpuMeter,
    pub(super) limiter: Limiter,
    /// The module's configuration, if it was given one.
    pub(super) config: Option<Arc<[u8]>>,
    /// The zero of the monotonic clock.
    pub(super) started: Instant,
    /// The last error of a connection's read or write.
    pub(super) broken: Option<std::io::Error>,
    /// True if some stream has come to its end.
    pub(super) saw_end: bool,
    /// The number of times that the guest has moved bytes of a connection, or made one.
    pub(super) moves: Arc<AtomicU64>,
    memory: Option<Memory>,
    timer: Option<Pin<Box<Sleep>>>,
    idle_answers: u32,
}

impl State {
    pub(super) fn new(
        output: Output,
        outside: Outside,
        config: Option<Arc<[u8]>>,
        cpu: CpuMeter,
        limiter: Limiter,
    ) -> State {
        State {
            config,
            fds: Descriptors::default(),
            output,
            outside,
            cpu,
            limiter,
            started: Instant::now(),
            broken: None,
            saw_end: false,
            moves: Arc::default(),
            memory: None,
            timer: None,
            idle_answers: 0,
        }
    }

    /// Notes that the guest has moved bytes of a connection, or made one. Printing, and reading its
    /// configuration, do not count: a guest could do those for ever.
    pub(super) fn moved(&mut self) {
        self.idle_answers = 0;
        self.moves.fetch_add(1, Ordering::Relaxed);
        self.cpu.moves();
    }

    /// Returns true if a stream of the guest's has ended or broken.
    pub(super) fn has_lost(&self) -> bool {
        self.saw_end || self.broken.is_some()
    }

    /// Notes that the guest waits, in place of asking in a loop.
    pub(super) fn waits_instead(&mut self) {
        self.idle_answers = 0;
    }

    /// Prepares for a wait of the guest: passes on what it has written.
    pub(super) fn wait(&mut self, cx: &mut Context<'_>) {
        self.cpu.waits();
        self.fds.poll_background(cx);
        self.notice_reset();
    }

    /// Tells the host if a client has reset its connection. A guest that is at work, or only
    /// watches the clock, does not notice that. A relay that has closed all of its connections is
    /// told the same: it would live on for nobody.
    pub(super) fn notice_reset(&mut self) {
        let is_reset = self.outside.accepts() && self.fds.ends().any(|end| end.is_reset());
        if is_reset || self.outside.relays() && !self.fds.has_connection() {
            self.outside.reset().notify_one();
        }
    }

    /// Returns ready at `deadline`. The state has one timer, since a guest waits for one thing.
    pub(super) fn poll_timer(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline.into())));
        if timer.deadline().into_std() != deadline {
            timer.as_mut().reset(deadline.into());
        }
        timer.as_mut().poll(cx)
    }
}

/// Makes a guest wait a little that asks in a loop.
#[derive(Default)]
pub(super) struct Idle {
    until: Option<Instant>,
}

impl Idle {
    /// Returns ready if the guest may be told that there is nothing.
    pub(super) fn poll(&mut self, state: &mut State, cx: &mut Context<'_>) -> Poll<()> {
        let until = match self.until {
            Some(until) => until,
            None => {
                state.idle_answers = state.idle_answers.saturating_add(1);
                if state.idle_answers <= MAX_IDLE_ANSWERS {
                    return Poll::Ready(());
                }
                *self.until.insert(Instant::now() + IDLE_PAUSE)
            }
        };
        state.wait(cx);
        state.poll_timer(cx, until)
    }
}

/// Returns the guest's memory and the state, side by side.
pub(super) fn split<'a>(
    caller: &'a mut Caller<'_, State>,
) -> wasmtime::Result<(&'a mut [u8], &'a mut State)> {
    let memory = match caller.data().memory {
        Some(memory) => memory,
        None => {
            let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
                return Err(wasmtime::Error::msg("the module exports no memory"));
            };
            caller.data_mut().memory = Some(memory);
            memory
        }
    };
    Ok(memory.data_and_store_mut(caller.as_context_mut()))
}

/// Returns the result of a function of WASI: 0, or the number of an error.
pub(super) fn answer(result: Result<(), Errno>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(errno) => i32::from(errno.0),
    }
}
