//! What stream transports have in common.
//!
//! A stream transport carries one stream of the application's over one of the network's.
//! What is its own is a [`Codec`], bytes in and bytes out for each direction, and a
//! [`StreamTransport`] that reads the configuration and makes one for each connection.
//! All else is here, once:
//!
//! 1. [`Relay`] copies between two [`End`]s through a codec, with back-pressure, with
//!    half-close both ways, and with a bound on what it holds.
//! 2. [`Streams`] is a [`watm_core::Transport`]: it accepts connections on the listener
//!    `listen` and offers them to the application, and dials for the application.
//! 3. [`FramedSocket`] carries datagrams over such streams, for transports of datagrams.
//! 4. A shell for WATER runs a relay over two file descriptors.
//!
//! Nothing waits: [`Relay::run`] moves what can be moved and says what it needs next.

mod buffer;
mod codec;
mod connection;
mod counters;
mod end;
mod framed;
mod handshakes;
mod relay;
mod settings;
mod streams;
mod symmetric;

pub use buffer::Buffer;
pub use codec::{Codec, Limits, StreamTransport};
pub use end::{End, Read};
pub use framed::{FramedSocket, FramedTokens};
pub use relay::{CHUNK, Needs, Progress, Ready, Relay};
pub use settings::Settings;
pub use streams::Streams;
pub use symmetric::Symmetric;
