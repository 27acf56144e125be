//! The two interfaces of WASI that a module may import.
//!
//! Two functions each, so they are written here: the crate that has all of WASI brings
//! file systems, sockets and an executor, which no module of ours may have.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, Lower};

use super::State;

/// The most random bytes a call gives. A key takes 32; a megabyte takes milliseconds.
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
    // The linker gives these to every version 0.2.x.
    let mut random = linker.instance("wasi:random/random@0.2.0")?;
    random.func_wrap(
        "get-random-bytes",
        |_: StoreContextMut<'_, State>, (len,): (u64,)| {
            if len > MAX_RANDOM_BYTES {
                return Err(wasmtime::Error::msg(format!(
                    "asked for {len} random bytes at once; {MAX_RANDOM_BYTES} at most"
                )));
            }
            let mut bytes = vec![0; usize::try_from(len)?];
            fill(&mut bytes)?;
            Ok((bytes,))
        },
    )?;
    random.func_wrap("get-random-u64", |_: StoreContextMut<'_, State>, (): ()| {
        let mut bytes = [0; 8];
        fill(&mut bytes)?;
        Ok((u64::from_le_bytes(bytes),))
    })?;
    let mut clock = linker.instance("wasi:clocks/wall-clock@0.2.0")?;
    clock.func_wrap("now", |_: StoreContextMut<'_, State>, (): ()| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok((Datetime::from(since.unwrap_or_default()),))
    })?;
    clock.func_wrap("resolution", |_: StoreContextMut<'_, State>, (): ()| {
        Ok((Datetime::from(Duration::from_nanos(1)),))
    })
}

fn fill(bytes: &mut [u8]) -> wasmtime::Result<()> {
    SystemRandom::new()
        .fill(bytes)
        .map_err(|_| wasmtime::Error::msg("the system gives no random numbers"))
}
