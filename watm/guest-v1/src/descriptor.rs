//! A stream that the host has opened, by its descriptor. Used throughout the crate.

use wasip1::{Ciovec, Errno, Fd, Iovec};
use watm_core::ErrorCode;
use watm_stream::{End, Read};

/// A non-blocking descriptor. The host closes it.
pub struct Descriptor {
    fd: Fd,
    /// See [`failure`](Descriptor::failure).
    failure: Option<Errno>,
}

impl Descriptor {
    /// Makes a descriptor from the host's number. A number below 0 is an errno, and is returned as
    /// the error.
    pub fn from_host(number: i32) -> Result<Descriptor, i32> {
        let fd = Fd::try_from(number).map_err(|_| number)?;
        let descriptor = Descriptor { fd, failure: None };
        // SAFETY: the flags of a descriptor take no memory.
        unsafe { wasip1::fd_fdstat_set_flags(fd, wasip1::FDFLAGS_NONBLOCK) }.map_err(negative)?;
        Ok(descriptor)
    }

    /// Another handle of the same descriptor.
    pub fn again(&self) -> Descriptor {
        Descriptor {
            fd: self.fd,
            failure: self.failure,
        }
    }

    /// The descriptor's number.
    pub fn number(&self) -> Fd {
        self.fd
    }

    /// The number as the host returned it.
    pub fn to_host(&self) -> i32 {
        // The number was an i32 of 0 or more.
        self.fd as i32
    }

    /// The error of a call that ends the connection.
    pub fn failure(&self) -> Option<Errno> {
        self.failure
    }

    /// Shuts both directions down. Closing a descriptor has no effect on the other end before the
    /// host closes its own; a shutdown does.
    pub fn hang_up(self) {
        // An error needs no handling.
        let _ = self.shutdown(wasip1::SDFLAGS_RD | wasip1::SDFLAGS_WR);
    }

    fn fail(&mut self, errno: Errno) -> ErrorCode {
        if errno == wasip1::ERRNO_PIPE {
            return ErrorCode::ConnectionAborted;
        }
        self.failure = Some(errno);
        match errno {
            wasip1::ERRNO_CONNRESET => ErrorCode::ConnectionReset,
            errno => ErrorCode::Other(errno.name().to_owned()),
        }
    }

    fn shutdown(&self, how: wasip1::Sdflags) -> Result<(), Errno> {
        // SAFETY: the call takes no memory.
        unsafe { wasip1::sock_shutdown(self.fd, how) }
    }
}

impl End for Descriptor {
    fn read(&mut self, into: &mut Vec<u8>, max: usize) -> Result<Read, ErrorCode> {
        into.reserve_exact(max);
        let slice = Iovec {
            buf: into.spare_capacity_mut().as_mut_ptr().cast(),
            buf_len: max,
        };
        // SAFETY: the slice is `max` bytes of the vector, which were reserved above.
        let count = match retry(|| unsafe { wasip1::fd_read(self.fd, &[slice]) }) {
            Ok(count) => count.min(max),
            Err(wasip1::ERRNO_AGAIN) => return Ok(Read::Short),
            Err(errno) => return Err(self.fail(errno)),
        };
        // SAFETY: the host has written this many bytes, and no more fit.
        unsafe { into.set_len(into.len() + count) };
        Ok(match count {
            0 => Read::End,
            _ if count == max => Read::More,
            _ => Read::Short,
        })
    }

    fn write(&mut self, data: &[u8]) -> Result<usize, ErrorCode> {
        let slice = Ciovec {
            buf: data.as_ptr(),
            buf_len: data.len(),
        };
        // SAFETY: the slice is `data`, which outlives the call.
        match retry(|| unsafe { wasip1::fd_write(self.fd, &[slice]) }) {
            Ok(count) => Ok(count.min(data.len())),
            Err(wasip1::ERRNO_AGAIN) => Ok(0),
            Err(errno) => Err(self.fail(errno)),
        }
    }

    fn finish(&mut self) -> Result<(), ErrorCode> {
        match self.shutdown(wasip1::SDFLAGS_WR) {
            // A connection that the other end has already reset has nothing to shut down.
            Ok(()) | Err(wasip1::ERRNO_NOTCONN) => Ok(()),
            Err(errno) => Err(self.fail(errno)),
        }
    }

    fn ignore(&mut self) -> Result<(), ErrorCode> {
        // A host without this call only leaves the other end waiting.
        let _ = self.shutdown(wasip1::SDFLAGS_RD);
        Ok(())
    }
}

/// Repeats a call that a signal to the host has interrupted.
pub fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(wasip1::ERRNO_INTR) => {}
            result => return result,
        }
    }
}

/// Converts an errno to the number that WATER's functions return.
pub fn negative(errno: Errno) -> i32 {
    -i32::from(errno.raw())
}
