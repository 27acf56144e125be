//! The component shell of a transport.
//!
//! A transport is written against [`watm_core`] and contains no wasm. Its crate calls [`export!`]
//! under `cfg(target_family = "wasm")`, and `cargo` then builds a module for the world `complete` of
//! `wit/world.wit`: the exports call the [`Transport`](watm_core::Transport), and the imports are
//! its [`Host`](watm_core::Host). No other guest crate uses the WIT.

#[doc(hidden)]
pub mod capture;
mod convert;
mod crypto;
mod host;
mod names;
#[doc(hidden)]
pub mod packets;
#[doc(hidden)]
pub mod shell;
#[doc(hidden)]
pub mod signing;

#[allow(missing_docs, reason = "generated; the documentation is in wit/")]
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "complete",
        ownership: Borrowing { duplicate_if_necessary: true },
        pub_export_macro: true,
        default_bindings_module: "watm_guest::bindings",
    });
}

/// Makes the crate a module whose transport is `$transport`, a type that implements
/// [`Transport`](watm_core::Transport). Call it once in a crate, at its top level. With `signing`
/// after the type, the transport can use [keys of the host](watm_core::signing); `capture` and `packets` likewise.
#[macro_export]
macro_rules! export {
    ($transport:ty $(, $service:ident)*) => {
        const _: () = {
            use $crate::bindings::exports::watm::transport::{
                datagram_dialer, endpoint, network_observer,
            };

            ::std::thread_local! {
                static SHELL: $crate::shell::Shell<$transport> =
                    const { $crate::shell::Shell::new() };
            }

            struct Component;

            impl endpoint::Guest for Component {
                fn start(
                    options: endpoint::StartOptions,
                    now: u64,
                ) -> Result<(), endpoint::ConfigError> {
                    $($crate::$service::provide();)*
                    SHELL.with(|shell| shell.start(options, now))
                }

                fn reconfigure(config: Vec<u8>, now: u64) -> Result<(), endpoint::ConfigError> {
                    SHELL.with(|shell| shell.reconfigure(&config, now))
                }

                fn process(now: u64, ready: Vec<u64>) -> endpoint::Wakeup {
                    SHELL.with(|shell| shell.process(now, &ready))
                }

                fn snapshot(now: u64) -> Vec<u8> {
                    SHELL.with(|shell| shell.snapshot(now))
                }

                fn serving(generation: u32, now: u64) {
                    SHELL.with(|shell| shell.serving(generation, now))
                }

                fn dial(
                    destination: Option<endpoint::DestinationResult>,
                    application: endpoint::ByteStream,
                    now: u64,
                ) -> Result<u64, endpoint::ErrorCodeResult> {
                    SHELL.with(|shell| shell.dial(destination, application, now))
                }

                fn get_status(now: u64) -> endpoint::Status {
                    SHELL.with(|shell| shell.status(now))
                }

                fn client_configs(
                    public: endpoint::DestinationResult,
                ) -> Result<Vec<endpoint::ClientConfig>, endpoint::ErrorCodeResult> {
                    SHELL.with(|shell| shell.client_configs(public))
                }
            }

            impl datagram_dialer::Guest for Component {
                fn dial_datagrams(
                    destination: Option<datagram_dialer::DestinationResult>,
                    application: datagram_dialer::DatagramFlow,
                    now: u64,
                ) -> Result<u64, datagram_dialer::ErrorCodeResult> {
                    SHELL.with(|shell| shell.dial_datagrams(destination, application, now))
                }
            }

            impl network_observer::Guest for Component {
                fn network_changed(now: u64) {
                    SHELL.with(|shell| shell.network_changed(now))
                }
            }

    $crate::bindings::export!(Component with_types_in $crate::bindings);
        };
    };
}
