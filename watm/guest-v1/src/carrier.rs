//! The interface between the shell and the code that carries one connection. Used throughout the
//! crate.

use wasip1::Errno;
use watm_core::{ConfigError, ErrorCode};
use watm_stream::{Needs, Progress, Ready};

use crate::config;
use crate::descriptor::{Descriptor, negative};

/// Makes the session of an instance. Its errors are errnos below 0 for the host; it has printed
/// their meaning before.
pub trait Carrier: Sized {
    /// A running connection.
    type Session: Session;

    /// Read a configuration.
    fn configure(config: &[u8]) -> Result<Self, ConfigError>;

    /// Opens a connection for `application`, to the address that `connect` allows.
    fn dial(
        &mut self,
        connect: Connect,
        application: Descriptor,
    ) -> Result<Self::Session, (i32, Descriptor)>;

    /// Accepts a connection.
    fn accept(&mut self, application: Descriptor) -> Result<Self::Session, i32>;
}

/// A connection, run whenever one of its two streams is ready.
pub trait Session {
    /// Move what can be moved. [`Progress::Done`]: both streams have ended.
    fn run(&mut self, ready: Ready) -> Result<Progress, Errno>;

    /// The conditions under which the next [`run`](Session::run) moves something.
    fn needs(&self) -> Needs;

    /// The time of the next run without an event, in nanoseconds on the clock of
    /// [`poll::now`](crate::poll::now).
    fn deadline(&self) -> Option<u64>;

    /// The two streams: the network's, then the application's.
    fn streams(&self) -> (&Descriptor, &Descriptor);

    /// Handles a cancellation by the host: the application has stopped reading and writing.
    fn cancel(&mut self) {}

    /// The remaining work, after that, for data that the application has written.
    fn linger(&self) -> Linger;

    /// Sends the last bytes to the network.
    fn hang_up(&mut self);
}

/// The remaining work of a cancelled session.
pub struct Linger {
    /// See [`Session::needs`].
    pub needs: Needs,
    /// True if waiting for another event is worthwhile.
    pub waits: bool,
}

/// The address that a connection may be opened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connect {
    /// The address that the host's caller names, and no other.
    Caller,
    /// The address in the configuration.
    Configured,
}

/// Prints why a transport cannot make a connection, and returns the errno.
pub fn refused(reason: ErrorCode) -> i32 {
    eprintln!("{}: {reason}", config::PATH);
    let errno: Errno = match reason {
        ErrorCode::NotSupported => wasip1::ERRNO_NOTSUP,
        _ => wasip1::ERRNO_INVAL,
    };
    negative(errno)
}

/// The errno for an error of a transport.
pub fn errno(reason: &ErrorCode) -> Errno {
    match reason {
        ErrorCode::AccessDenied => wasip1::ERRNO_ACCES,
        ErrorCode::NotSupported => wasip1::ERRNO_NOTSUP,
        ErrorCode::InvalidArgument => wasip1::ERRNO_INVAL,
        ErrorCode::Timeout => wasip1::ERRNO_TIMEDOUT,
        ErrorCode::RemoteUnreachable | ErrorCode::NameUnresolvable => wasip1::ERRNO_HOSTUNREACH,
        ErrorCode::ConnectionRefused => wasip1::ERRNO_CONNREFUSED,
        ErrorCode::ConnectionReset => wasip1::ERRNO_CONNRESET,
        ErrorCode::ConnectionAborted => wasip1::ERRNO_CONNABORTED,
        _ => wasip1::ERRNO_PROTO,
    }
}
