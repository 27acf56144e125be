//! The WATER v1 shell of a transport.
//!
//! WATER runtimes make one instance of a module for each connection, and call in this order:
//!
//! 1. `watm_init_v1`: the shell reads `/conf/watm.cfg`, and the transport parses it.
//! 2. The function of the role (`watm_dial_v1`, `watm_dial_fixed_v1`, `watm_accept_v1`,
//!    `watm_associate_v1`), once: the shell asks the host for the network's stream.
//! 3. `watm_ctrlpipe_v1`: passes a descriptor on which the host tells the module to stop.
//! 4. `watm_start_v1`: moves bytes between the two descriptors until both streams have ended, and
//!    waits in `poll_oneoff`.
//!
//! A [`Relayed`] codec connects the descriptors of a stream transport, and a [`Hosted`] transport
//! those of any other kind.
//!
//! All functions return a descriptor, 0, or an errno of WASI below 0. The runtime written in Go has
//! special needs: interrupted calls are repeated, descriptors have any number, and the end of a
//! connection is an error (`-EPIPE`), since that host closes it only then. A crate calls
//! [`export!`] under `cfg(target_family = "wasm")`. This crate is empty for other targets, except
//! for Miri on a machine of 32 bits, where `tests/miri` is the host.
#![cfg(any(target_family = "wasm", miri))]

mod carrier;
mod config;
mod descriptor;
mod env;
mod hosted;
mod poll;
mod relayed;
#[doc(hidden)]
pub mod shell;
mod worker;

pub use carrier::{Carrier, Connect, Linger, Session};
pub use hosted::Hosted;
pub use relayed::Relayed;

/// Marks the module as one whose connections name their clients, which this interface cannot report
/// to a host. A host then refuses options that need the client's address.
#[macro_export]
macro_rules! names_clients {
    () => {
        const _: () = {
            // Linkers drop a section without content.
            #[used]
            #[unsafe(link_section = "watm.names-clients")]
            static NAMES_CLIENTS: [u8; 1] = [1];
        };
    };
}

/// Makes the crate a module that carries connections with `$carrier`, which is [`Relayed`] or
/// [`Hosted`] with a transport. Call it once in a crate, at its top level.
#[macro_export]
macro_rules! export {
    ($carrier:ty) => {
        const _: () = {
            ::std::thread_local! {
                static SHELL: $crate::shell::Shell<$carrier> =
                    const { $crate::shell::Shell::new() };
            }

            #[unsafe(no_mangle)]
            extern "C" fn watm_init_v1() -> i32 {
                SHELL.with(|shell| shell.init())
            }

            #[unsafe(no_mangle)]
            extern "C" fn watm_dial_v1(caller: i32) -> i32 {
                SHELL.with(|shell| shell.dial(caller))
            }

            #[unsafe(no_mangle)]
            extern "C" fn watm_dial_fixed_v1(caller: i32) -> i32 {
                SHELL.with(|shell| shell.dial_fixed(caller))
            }

            #[unsafe(no_mangle)]
            extern "C" fn watm_accept_v1(caller: i32) -> i32 {
                SHELL.with(|shell| shell.accept(caller))
            }

            #[unsafe(no_mangle)]
            extern "C" fn watm_associate_v1() -> i32 {
                SHELL.with(|shell| shell.associate())
            }

            #[unsafe(no_mangle)]
            extern "C" fn watm_ctrlpipe_v1(control: i32) -> i32 {
                SHELL.with(|shell| shell.control(control))
            }

            #[unsafe(no_mangle)]
            extern "C" fn watm_start_v1() -> i32 {
                SHELL.with(|shell| shell.start())
            }
        };
    };
}
