//! Connections through modules, in the style of the standard library and tokio: [`Dialer`],
//! [`FixedDialer`], [`Listener`], [`Relay`].
//!
//! They use one trait, [`runner::Runner`], which hides the kind of module.

mod builder;
#[cfg(feature = "socks")]
mod carrier;
mod component;
mod connection;
mod dialer;
mod fixed_dialer;
mod listener;
#[cfg(feature = "programs")]
mod program;
#[cfg(feature = "socks")]
mod proxies;
mod relay;
mod runner;
mod through;
mod water;

pub use builder::RoleBuilder;
#[cfg(feature = "socks")]
pub use carrier::Carrier;
pub use connection::Connection;
pub use dialer::{DialOptions, Dialer};
pub use fixed_dialer::FixedDialer;
pub use listener::Listener;
#[cfg(feature = "programs")]
pub use program::{Program, ProgramOptions};
#[cfg(feature = "socks")]
pub use proxies::DialerWithOptions;
pub use relay::Relay;
