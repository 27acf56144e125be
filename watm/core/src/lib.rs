//! The seam between a transport and its host.
//!
//! A transport is a state machine without clocks, sockets, threads or randomness of its own. It
//! implements [`Transport`] and reaches everything else through its [`Host`]. The same crate thus
//! runs natively in a test, and in a module behind `wit/`, whose functions these traits mirror one
//! to one.
//!
//! # The run loop
//!
//! 1. The host calls [`Transport::start`] once. The transport opens the sockets it
//!    needs by label, each under a [`Token`] that it chooses.
//! 2. The host calls [`Transport::process`] with the tokens of the resources that can
//!    make progress, and with the time.
//! 3. The transport moves what it can: it receives until a call falls short of what it
//!    asked for (that arms the token again), and does the timers that are due.
//! 4. It returns when it wants to be called next, as a [`Wakeup`]. Back to 2.
//!
//! Input never fails: a bad datagram is a counter and at most a [`Level::Trace`] record.
//!
//! # Why traits and not a list of outputs to poll
//!
//! A transport that returns outputs needs a queue for each of them, with a bound that is hard to
//! choose. Behind these traits a full queue is visible where it matters: a short count from
//! [`ByteStream::write`] leaves the bytes in the TCP receive window, and the far sender slows down.

mod address;
pub mod capture;
pub mod crypto;
mod host;
mod names;
pub mod packets;
pub mod signing;
mod time;
mod transport;

pub use address::{Destination, NotADestination};
pub use host::{
    ByteStream, Datagram, DatagramBatch, DatagramFlow, DatagramSocket, Datagrams, Direction, Ecn,
    ErrorCode, FlowInfo, FlowKind, Host, Level, Listener, Mail, Mailbox, MessageInfo, Messages,
    Token,
};
pub use names::Lookup;
pub use time::Instant;
pub use transport::{
    ClientConfig, ConfigError, PeerStatus, StartOptions, Status, Transport, Wakeup,
};
