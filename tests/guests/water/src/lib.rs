//! A WATER module that makes random calls of the host to test its robustness: huge sizes, stale
//! descriptors, pointers past the end, traps in the middle. The configuration `hostile SEED` starts
//! it. The same seed makes the same choices for as long as the host answers the same.
//!
//! Each seed has one kind of call that it makes most of the time, so that consecutive seeds press
//! on one place after another. It is a listener, and the first byte of each client chooses among
//! the seed's choices. With `hostile :`, the bytes after it are the choices.

mod guest;
mod imports;

use std::cell::RefCell;

use guest::Guest;

thread_local! {
    static GUEST: RefCell<Option<Guest>> = const { RefCell::new(None) };
}

fn with_guest(act: impl FnOnce(&mut Guest) -> i32) -> i32 {
    const FAILED: i32 = -29;
    GUEST.with_borrow_mut(|guest| guest.as_mut().map_or(FAILED, act))
}

/// Reads the configuration.
#[unsafe(no_mangle)]
extern "C" fn watm_init_v1() -> i32 {
    match Guest::new() {
        Ok(guest) => {
            GUEST.with_borrow_mut(|place| *place = Some(guest));
            0
        }
        Err(errno) => errno,
    }
}

/// Takes the application's stream, and returns the client's connection.
#[unsafe(no_mangle)]
extern "C" fn watm_accept_v1(_application: i32) -> i32 {
    let net = imports::water_accept();
    if net >= 0 {
        with_guest(|guest| {
            guest.hear(net);
            0
        });
    }
    net
}

/// Takes the control pipe, and ignores it.
#[unsafe(no_mangle)]
extern "C" fn watm_ctrlpipe_v1(_pipe: i32) -> i32 {
    0
}

/// Serves the connection.
#[unsafe(no_mangle)]
extern "C" fn watm_start_v1() -> i32 {
    with_guest(Guest::work)
}
