//! What a shell runs: something that carries one connection.

use wasip1::Errno;
use watm_core::{ConfigError, ErrorCode};
use watm_stream::{Needs, Progress, Ready};

use crate::config;
use crate::descriptor::{Descriptor, negative};

/// Makes the session of an instance. Its errors are errnos below 0, which are for the host;
/// what they mean has been printed.
pub trait Carrier: Sized {
    /// The connection's life.
    type Session: Session;

    /// Read a configuration.
    fn configure(config: &[u8]) -> Result<Self, ConfigError>;

    /// For a connection that is opened for `application`, by what `connect` allows.
    fn dial(
        &mut self,
        connect: Connect,
        application: Descriptor,
    ) -> Result<Self::Session, (i32, Descriptor)>;

    /// For a connection that somebody has opened.
    fn accept(&mut self, application: Descriptor) -> Result<Self::Session, i32>;
}

/// A connection: what is to be done whenever one of its two streams is ready.
pub trait Session {
    /// Move what can be moved. [`Progress::Done`]: both streams have ended.
    fn run(&mut self, ready: Ready) -> Result<Progress, Errno>;

    /// What has to happen for the next [`run`](Session::run) to move something.
    fn needs(&self) -> Needs;

    /// When to run even if nothing happens, in nanoseconds on the clock of
    /// [`poll::now`](crate::poll::now).
    fn deadline(&self) -> Option<u64>;

    /// The two streams: the network's, then the application's.
    fn streams(&self) -> (&Descriptor, &Descriptor);

    /// The host wants an end: nobody will read what still comes, or write more.
    fn cancel(&mut self) {}

    /// What is still to be done, after that, for what the application had written.
    fn linger(&self) -> Linger;

    /// Say to the network what is to be said last.
    fn hang_up(&mut self);
}

/// What a session does that was cancelled.
pub struct Linger {
    /// As [`Session::needs`].
    pub needs: Needs,
    /// How long it is worth waiting for more to happen, in nanoseconds.
    pub patience: u64,
}

/// Where a connection may be opened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connect {
    /// Where the host's caller says, and nowhere else.
    Caller,
    /// Where the configuration says.
    Configured,
}

/// What a transport says to a connection that it cannot make.
pub fn refused(reason: ErrorCode) -> i32 {
    eprintln!("{}: {reason}", config::PATH);
    let errno: Errno = match reason {
        ErrorCode::NotSupported => wasip1::ERRNO_NOTSUP,
        _ => wasip1::ERRNO_INVAL,
    };
    negative(errno)
}

/// The errno for what a transport does not put up with.
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
