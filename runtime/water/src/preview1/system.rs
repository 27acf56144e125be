//! Functions for arguments, environment, clocks, randomness, yielding and exit. Used by `poll` and
//! `preview1`.

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use wasmtime::{Caller, Linker};

use crate::errno::Errno;
use crate::guest::{bytes_mut, write_u32, write_u64};
use crate::state::{Idle, State, answer, split};
use watm_policy::water_abi::PREVIEW1;

/// The most random bytes that are made before other tasks get the thread: under a millisecond.
const RANDOM_PIECE: usize = 256 << 10;

/// The error that ends a guest which calls `proc_exit`.
#[derive(Debug)]
pub(crate) struct Exit(pub(crate) i32);

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "called proc_exit({})", self.0)
    }
}

impl std::error::Error for Exit {}

pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    for name in ["args_sizes_get", "environ_sizes_get"] {
        linker.func_wrap(PREVIEW1, name, none_of_them)?;
    }
    for name in ["args_get", "environ_get"] {
        // Both lists are empty, so that nothing is written.
        linker.func_wrap(PREVIEW1, name, |_: Caller<'_, State>, _: u32, _: u32| 0_i32)?;
    }
    linker.func_wrap(PREVIEW1, "clock_res_get", clock_res_get)?;
    linker.func_wrap(PREVIEW1, "clock_time_get", clock_time_get)?;
    linker.func_wrap(PREVIEW1, "proc_exit", |code: i32| -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Exit(code)))
    })?;
    linker.func_wrap_async(
        PREVIEW1,
        "sched_yield",
        |caller: Caller<'_, State>, (): ()| Box::new(sched_yield(caller)),
    )?;
    linker.func_wrap_async(
        PREVIEW1,
        "random_get",
        |caller: Caller<'_, State>, (pointer, len): (u32, u32)| {
            Box::new(random_get(caller, pointer, len))
        },
    )?;
    Ok(())
}

fn none_of_them(mut caller: Caller<'_, State>, count: u32, size: u32) -> wasmtime::Result<i32> {
    let (memory, _) = split(&mut caller)?;
    let written = write_u32(memory, count, 0).and_then(|()| write_u32(memory, size, 0));
    Ok(answer(written))
}

/// The clocks that a guest may read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    Real,
    Monotonic,
}

impl Clock {
    pub(super) fn of(number: u32) -> Result<Clock, Errno> {
        match number {
            0 => Ok(Clock::Real),
            1 => Ok(Clock::Monotonic),
            // A guest may not read CPU time.
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn now(self, state: &State) -> Duration {
        match self {
            Clock::Real => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            Clock::Monotonic => state.started.elapsed(),
        }
    }
}

fn clock_res_get(mut caller: Caller<'_, State>, clock: u32, out: u32) -> wasmtime::Result<i32> {
    let (memory, _) = split(&mut caller)?;
    let result = Clock::of(clock).and_then(|_| write_u64(memory, out, 1));
    Ok(answer(result))
}

fn clock_time_get(
    mut caller: Caller<'_, State>,
    clock: u32,
    _precision: u64,
    out: u32,
) -> wasmtime::Result<i32> {
    let (memory, state) = split(&mut caller)?;
    let result = Clock::of(clock).and_then(|clock| {
        let now = u64::try_from(clock.now(state).as_nanos()).map_err(|_| Errno::OVERFLOW)?;
        write_u64(memory, out, now)
    });
    Ok(answer(result))
}

/// Lets other tasks run. A guest that does nothing else waits a little.
async fn sched_yield(mut caller: Caller<'_, State>) -> i32 {
    let mut idle = Idle::default();
    let mut yielded = false;
    poll_fn(|cx| {
        let state = caller.data_mut();
        if idle.poll(state, cx).is_pending() {
            return Poll::Pending;
        }
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        state.fds.poll_background(cx);
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    0
}

async fn random_get(
    mut caller: Caller<'_, State>,
    pointer: u32,
    len: u32,
) -> wasmtime::Result<i32> {
    let (memory, _) = split(&mut caller)?;
    if let Err(errno) = bytes_mut(memory, pointer, len) {
        return Ok(answer(Err(errno)));
    }
    let mut done = 0;
    while done < len {
        let (memory, _) = split(&mut caller)?;
        let piece = (len - done).min(RANDOM_PIECE as u32);
        let filled = bytes_mut(memory, pointer + done, piece)
            .and_then(|piece| SystemRandom::new().fill(piece).map_err(|_| Errno::IO));
        if let Err(errno) = filled {
            return Ok(answer(Err(errno)));
        }
        done += piece;
        if done < len {
            tokio::task::yield_now().await;
        }
    }
    Ok(0)
}
