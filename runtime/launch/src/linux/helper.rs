//! The helper: it enters the namespaces, makes the device and runs the program. `lib.rs` has the
//! overview.

use std::fmt;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::sockets::SocketTable;
use super::{interface, mounts, namespaces, supervise};
use crate::Plan;
use crate::control::{self, Network};

/// The exit status of a helper that could not run the program.
const FAILED: i32 = 125;

/// Does the helper's work, in a process with one thread. `control` is the number of the inherited
/// socket, which nothing else in the process may use. Returns the exit status of the program.
pub fn help(control: i32) -> i32 {
    // SAFETY: the parent has opened the socket for this process, and told its number to nobody else.
    let mut control = UnixStream::from(unsafe { OwnedFd::from_raw_fd(control) });
    // The parent may have ended, which leaves nothing to do.
    let Ok(plan) = control::receive_plan(&mut control) else {
        return FAILED;
    };
    supervise::block_signals();
    let network = prepare(&plan);
    let failed = network.is_err();
    if control::send_network(&mut control, &network).is_err() || failed {
        return FAILED;
    }
    drop(network);
    if plan.program.is_empty() || control.read_exact(&mut [0]).is_err() {
        return FAILED;
    }
    supervise::run(&plan, control).unwrap_or_else(|error| {
        complain("the program", &error);
        FAILED
    })
}

/// Tells whoever reads the program's errors why it does not run. The parent is no longer asked.
pub fn complain(what: &str, error: &dyn fmt::Display) {
    let line = format!("cannot run {what}: {error}\n");
    // In one call, so that no line of the parent comes between. Nobody is told of an error.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Enters the namespaces, or the one that exists already. Makes the device, and opens the table of
/// sockets.
fn prepare(plan: &Plan) -> Result<Network, String> {
    let device = match &plan.namespace {
        Some(namespace) => {
            namespaces::join(namespace)?;
            interface::add(plan)?
        }
        None => {
            namespaces::enter()?;
            let device = interface::make(plan)?;
            mounts::replace(plan)?;
            device
        }
    };
    // A system without it lacks the processes behind connections alone.
    let sockets = SocketTable::open().ok().map(OwnedFd::from);
    Ok(Network { device, sockets })
}
