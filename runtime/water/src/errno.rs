//! The error numbers of WASI preview 1, which the functions of WATER return negated. `env` and
//! `preview1` return them.

use std::borrow::Cow;
use std::io;

use crate::ErrorCode;

/// An error number; 0 is success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub u16);

macro_rules! errnos {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// The numbers that the host returns.
        #[allow(dead_code, reason = "the table is whole, so that names are found by number")]
        impl Errno {
            $(pub const $name: Errno = Errno($number);)*
        }

        const NAMES: &[(u16, &str)] = &[$(($number, stringify!($name))),*];
    };
}

errnos! {
    TOOBIG = 1, ACCES = 2, ADDRINUSE = 3, ADDRNOTAVAIL = 4, AFNOSUPPORT = 5, AGAIN = 6,
    ALREADY = 7, BADF = 8, BADMSG = 9, BUSY = 10, CANCELED = 11, CHILD = 12,
    CONNABORTED = 13, CONNREFUSED = 14, CONNRESET = 15, DEADLK = 16, DESTADDRREQ = 17,
    DOM = 18, DQUOT = 19, EXIST = 20, FAULT = 21, FBIG = 22, HOSTUNREACH = 23, IDRM = 24,
    ILSEQ = 25, INPROGRESS = 26, INTR = 27, INVAL = 28, IO = 29, ISCONN = 30, ISDIR = 31,
    LOOP = 32, MFILE = 33, MLINK = 34, MSGSIZE = 35, MULTIHOP = 36, NAMETOOLONG = 37,
    NETDOWN = 38, NETRESET = 39, NETUNREACH = 40, NFILE = 41, NOBUFS = 42, NODEV = 43,
    NOENT = 44, NOEXEC = 45, NOLCK = 46, NOLINK = 47, NOMEM = 48, NOMSG = 49,
    NOPROTOOPT = 50, NOSPC = 51, NOSYS = 52, NOTCONN = 53, NOTDIR = 54, NOTEMPTY = 55,
    NOTRECOVERABLE = 56, NOTSOCK = 57, NOTSUP = 58, NOTTY = 59, NXIO = 60, OVERFLOW = 61,
    OWNERDEAD = 62, PERM = 63, PIPE = 64, PROTO = 65, PROTONOSUPPORT = 66, PROTOTYPE = 67,
    RANGE = 68, ROFS = 69, SPIPE = 70, SRCH = 71, STALE = 72, TIMEDOUT = 73, TXTBSY = 74,
    XDEV = 75, NOTCAPABLE = 76,
}

impl Errno {
    /// Returns the number negated, as a function of WATER returns it.
    pub fn negated(self) -> i32 {
        -i32::from(self.0)
    }

    /// Returns the error that a function of WATER returned, if it is one.
    pub fn of_result(result: i32) -> Option<Errno> {
        let number = (result < 0).then(|| result.unsigned_abs())?;
        Some(Errno(u16::try_from(number).unwrap_or(u16::MAX)))
    }

    /// Returns the name as C has it, such as `ENOTCONN`.
    pub fn name(self) -> Cow<'static, str> {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, "TOOBIG")) => Cow::Borrowed("E2BIG"),
            Some((_, name)) => Cow::Owned(format!("E{name}")),
            None => Cow::Borrowed("an unknown error"),
        }
    }
}

impl From<&io::Error> for Errno {
    fn from(error: &io::Error) -> Errno {
        match error.kind() {
            io::ErrorKind::WouldBlock => Errno::AGAIN,
            io::ErrorKind::ConnectionRefused => Errno::CONNREFUSED,
            io::ErrorKind::ConnectionReset => Errno::CONNRESET,
            io::ErrorKind::ConnectionAborted => Errno::CONNABORTED,
            io::ErrorKind::NotConnected => Errno::NOTCONN,
            io::ErrorKind::BrokenPipe | io::ErrorKind::WriteZero => Errno::PIPE,
            io::ErrorKind::TimedOut => Errno::TIMEDOUT,
            io::ErrorKind::HostUnreachable => Errno::HOSTUNREACH,
            io::ErrorKind::NetworkUnreachable => Errno::NETUNREACH,
            io::ErrorKind::NetworkDown => Errno::NETDOWN,
            io::ErrorKind::PermissionDenied => Errno::ACCES,
            _ => Errno::IO,
        }
    }
}

/// The error that a module sees after the application aborted its flow.
impl From<ErrorCode> for Errno {
    fn from(code: ErrorCode) -> Errno {
        match code {
            // The application has stopped reading, or this end has stopped writing.
            ErrorCode::ConnectionAborted | ErrorCode::InvalidState => Errno::PIPE,
            other => Errno::from(&io::Error::from(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Errno;

    #[test]
    fn errors_are_named_by_number() {
        let name = |result| Errno::of_result(result).map(|errno| errno.name().into_owned());
        assert_eq!(name(-1).as_deref(), Some("E2BIG"));
        assert_eq!(name(-53).as_deref(), Some("ENOTCONN"));
        assert_eq!(name(-76).as_deref(), Some("ENOTCAPABLE"));
        assert_eq!(name(-77).as_deref(), Some("an unknown error"));
        assert_eq!(name(i32::MIN).as_deref(), Some("an unknown error"));
        assert_eq!(name(0), None);
        assert_eq!(name(1), None);
    }
}
