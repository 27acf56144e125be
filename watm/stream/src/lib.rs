//! The common parts of stream transports.
//!
//! A stream transport carries one stream of the application over one of the network. It consists of
//! a [`Codec`], which turns bytes into bytes for each direction, and of a [`StreamTransport`],
//! which reads the configuration and makes a codec for each connection. The other parts are shared
//! and are here:
//!
//! 1. [`Relay`] copies between two [`End`]s through a codec, with back-pressure, with
//!    half-close both ways, and with a bound on what it holds.
//! 2. [`Streams`] is a [`watm_core::Transport`]: it accepts connections on the listener
//!    `listen` and offers them to the application, and dials for the application.
//! 3. [`FramedSocket`] carries datagrams over such streams, for transports of datagrams.
//! 4. [`Outgoing`] queues datagrams for a socket, for transports that carry them beside streams.
//! 5. A shell for WATER runs a relay over two file descriptors.
//!
//! No call blocks: [`Relay::run`] moves what it can and reports what it needs next.

mod buffer;
mod codec;
mod connection;
mod counters;
mod end;
mod framed;
mod handshakes;
mod outgoing;
mod relay;
mod settings;
mod streams;
mod symmetric;

pub use buffer::Buffer;
pub use codec::{Codec, Limits, StreamTransport};
pub use end::{End, Read};
pub use framed::{FramedSocket, FramedTokens};
pub use outgoing::Outgoing;
pub use relay::{CHUNK, Needs, Progress, Ready, Relay};
pub use settings::{REMOTE, Settings};
pub use streams::Streams;
pub use symmetric::{SYMMETRIC, Symmetric};
