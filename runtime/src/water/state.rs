use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;
use wasmtime::{AsContextMut, Caller, Extern, Memory};

use super::cpu::CpuMeter;
use super::errno::Errno;
use super::fds::Descriptors;
use super::output::Output;
use super::outside::Outside;
use crate::limiter::Limiter;

/// Answers in a row that gave the guest nothing, after which it is made to wait: it asks
/// again and again in place of polling.
const MAX_IDLE_ANSWERS: u32 = 64;
/// How long then, unless what it asks for comes before.
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// What one instance works on.
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
    /// Some stream has come to its end.
    pub(super) saw_end: bool,
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
            memory: None,
            timer: None,
            idle_answers: 0,
        }
    }

    /// The guest has moved bytes of a connection, or made one. What it prints, and what it reads
    /// of its configuration, is no movement: it could do that for ever.
    pub(super) fn moved(&mut self) {
        self.idle_answers = 0;
        self.cpu.moves();
    }

    /// Whether a stream of the guest's has ended or broken.
    pub(super) fn has_lost(&self) -> bool {
        self.saw_end || self.broken.is_some()
    }

    /// The guest does wait, in place of asking in a circle.
    pub(super) fn idles_no_more(&mut self) {
        self.idle_answers = 0;
    }

    /// The guest is about to wait.
    pub(super) fn wait(&mut self, cx: &mut Context<'_>) {
        self.cpu.waits();
        self.fds.poll_background(cx);
        self.notice_reset();
    }

    /// Tells the host if a client has reset its connection, which a guest does not notice that is
    /// at work or watches the clock alone.
    pub(super) fn notice_reset(&mut self) {
        if self.outside.accepts() && self.fds.ends().any(|end| end.is_reset()) {
            self.outside.reset().notify_one();
        }
    }

    /// Ready at `deadline`. The state has one timer, since a guest waits for one thing.
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

/// Has a guest that asks in a circle wait a little.
#[derive(Default)]
pub(super) struct Idle {
    until: Option<Instant>,
}

impl Idle {
    /// Ready if the guest may be told that there is nothing.
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

/// The guest's memory and the state, side by side.
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

/// What a function of WASI answers: 0, or the number of an error.
pub(super) fn answer(result: Result<(), Errno>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(errno) => i32::from(errno.0),
    }
}
