//! The two interfaces of WASI that a module may import: clocks and randomness. `component` links
//! them.
//!
//! They have two functions each, so they are written here: the crate with all of WASI brings file
//! systems, sockets and an executor, none of which a module may have.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, Lower};

use super::{Failure, State};
use crate::recording::import;

/// The most random bytes of one call. A key takes 32; a megabyte takes milliseconds.
const MAX_RANDOM_BYTES: u64 = 1 << 20;

#[derive(ComponentType, Lift, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

impl From<Duration> for Datetime {
    fn from(duration: Duration) -> Datetime {
        Datetime {
            seconds: duration.as_secs(),
            nanoseconds: duration.subsec_nanos(),
        }
    }
}

pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    // The linker offers this version for every version 0.2.x.
    let mut random = linker.instance("wasi:random/random@0.2.0")?;
    random.func_wrap(
        "get-random-bytes",
        |mut store: StoreContextMut<'_, State>, (len,): (u64,)| {
            let state = store.data_mut();
            state
                .turn(import::RandomBytes, || (len,))
                .take(state, |_| random_bytes(len))
                .map(|bytes| (bytes,))
                .map_err(Failure::into_trap)
        },
    )?;
    random.func_wrap(
        "get-random-u64",
        |mut store: StoreContextMut<'_, State>, (): ()| {
            let state = store.data_mut();
            let random = state.turn(import::RandomU64, || ()).take(state, |_| {
                let mut bytes = [0; 8];
                fill(&mut bytes)?;
                Ok(u64::from_le_bytes(bytes))
            });
            random.map(|number| (number,)).map_err(Failure::into_trap)
        },
    )?;
    let mut clock = linker.instance("wasi:clocks/wall-clock@0.2.0")?;
    clock.func_wrap("now", |mut store: StoreContextMut<'_, State>, (): ()| {
        let state = store.data_mut();
        let since = state.turn(import::WallClock, || ()).take(state, |_| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            Ok(since.unwrap_or_default())
        });
        since
            .map(|since| (Datetime::from(since),))
            .map_err(Failure::into_trap)
    })?;
    clock.func_wrap("resolution", |_: StoreContextMut<'_, State>, (): ()| {
        Ok((Datetime::from(Duration::from_nanos(1)),))
    })
}

fn random_bytes(len: u64) -> Result<Vec<u8>, Failure> {
    if len > MAX_RANDOM_BYTES {
        return Err(trap(format!(
            "requested {len} random bytes in one call; must be at most {MAX_RANDOM_BYTES}"
        )));
    }
    // The length is at most the limit.
    let mut bytes = vec![0; len as usize];
    fill(&mut bytes)?;
    Ok(bytes)
}

fn fill(bytes: &mut [u8]) -> Result<(), Failure> {
    SystemRandom::new()
        .fill(bytes)
        .map_err(|_| trap("the system's random number generator failed".to_owned()))
}

fn trap(reason: String) -> Failure {
    Failure::Trap(wasmtime::Error::msg(reason))
}
