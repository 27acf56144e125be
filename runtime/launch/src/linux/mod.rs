//! The launch on Linux: the parent's end here, and the helper's parts in the other files.

mod helper;
mod interface;
mod mounts;
mod namespaces;
mod processes;
mod sockets;
mod supervise;
mod sys;

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use crate::{Plan, control};

pub use helper::help;
pub use processes::Processes;
pub use sockets::SocketTable;

/// The exit status of a program that a signal ended, less the signal's number, as shells have it.
const BY_SIGNAL: i32 = 128;

/// A program that was launched, or waits for [`begin`](Launched::begin). Dropping it kills the
/// program and its children.
#[derive(Debug)]
pub struct Launched {
    device: Option<OwnedFd>,
    sockets: Option<SocketTable>,
    control: UnixStream,
    helper: Child,
}

/// Starts the helper, which makes the device. `helper` is the command of a process that calls
/// [`help`] with its last argument, which this function adds. It must have one thread then.
///
/// Blocks until the helper has the device. Fails in the words of the helper, which say what the
/// system does not permit and what to do about it.
pub fn launch(mut helper: Command, plan: &Plan) -> io::Result<Launched> {
    let (mut control, theirs) = UnixStream::pair()?;
    let number = theirs.as_raw_fd();
    helper.arg(number.to_string());
    let inherit = move || {
        // SAFETY: the call changes a flag of the descriptor, and takes no pointers.
        sys::check(unsafe { libc::fcntl(number, libc::F_SETFD, 0) })?;
        Ok(())
    };
    // SAFETY: between fork and exec it makes one system call, and allocates nothing.
    unsafe { helper.pre_exec(inherit) };
    let mut child = helper.spawn().map_err(|error| {
        let reason = format!("cannot start the helper: {error}");
        io::Error::new(error.kind(), reason)
    })?;
    drop(theirs);
    let received = control::send_plan(&mut control, plan)
        .and_then(|()| control::receive_network(&mut control));
    let failed = match received {
        Ok(Ok(network)) => {
            return Ok(Launched {
                device: Some(network.device),
                sockets: network.sockets.map(SocketTable::of),
                control,
                helper: child,
            });
        }
        Ok(Err(reason)) => io::Error::other(reason),
        Err(error) => io::Error::other(format!("the helper ended early: {error}")),
    };
    // It has nothing to clean up.
    let _ = child.kill();
    let _ = child.wait();
    Err(failed)
}

impl Launched {
    /// Returns the number of the helper, a process in the network of the program.
    pub fn id(&self) -> u32 {
        self.helper.id()
    }

    /// Takes the device, to give it to a module.
    pub fn take_device(&mut self) -> Option<OwnedFd> {
        self.device.take()
    }

    /// Takes the table of the network's sockets. There is none on a kernel without sock_diag(7).
    pub fn take_sockets(&mut self) -> Option<SocketTable> {
        self.sockets.take()
    }

    /// Lets the program start.
    pub fn begin(&mut self) -> io::Result<()> {
        self.control.write_all(&[1])
    }

    /// Sends a signal to the program, which may handle it.
    pub fn signal(&self, number: i32) {
        // The helper may be gone, and the program with it. It is not reaped before `wait`.
        let _ = sys::kill(self.helper.id() as libc::pid_t, number);
    }

    /// Kills the program and its children.
    pub fn kill(&self) {
        // The helper finds the socket closed. An error means that it has ended.
        let _ = self.control.shutdown(std::net::Shutdown::Both);
    }

    /// Returns a function that blocks until the program has ended.
    pub fn watch(&self) -> io::Result<impl FnOnce() + Send + 'static> {
        let mut control = self.control.try_clone()?;
        Ok(move || {
            // The helper writes nothing more, so this is the end of its socket.
            let _ = control.read(&mut [0]);
        })
    }

    /// Returns the exit status once the program has ended: its own, or 128 and the number of the
    /// signal that ended it.
    pub fn try_wait(&mut self) -> io::Result<Option<i32>> {
        Ok(self.helper.try_wait()?.map(code))
    }

    /// Waits for the end of the program, and returns its exit status as
    /// [`try_wait`](Launched::try_wait).
    pub fn wait(&mut self) -> io::Result<i32> {
        self.helper.wait().map(code)
    }
}

/// Returns true if this process is in the foreground of a terminal, which sends its signals to the
/// program too.
pub fn has_terminal() -> bool {
    let Ok(terminal) = std::fs::File::open("/dev/tty") else {
        return false;
    };
    // SAFETY: both calls take no pointers.
    let (foreground, own) = unsafe { (libc::tcgetpgrp(terminal.as_raw_fd()), libc::getpgrp()) };
    foreground == own
}

fn code(status: ExitStatus) -> i32 {
    let signal = status.signal().map(|signal| BY_SIGNAL + signal);
    status.code().or(signal).unwrap_or(BY_SIGNAL)
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.kill();
        let _ = self.helper.wait();
    }
}
