//! Runs a program, with its children, whose only network is a device for IP packets of the parent.
//!
//! `watm tunnel --exec` and the Python package call [`launch`]. It starts a *helper*, which is the same
//! program again or a fresh interpreter, with one thread: only such a process may enter new
//! namespaces. The helper calls [`help`], which
//!
//! 1. enters a network namespace, a mount namespace and a namespace for processes; without the rights
//!    of root, first a user namespace;
//! 2. makes the device, and sends its descriptor to the parent, with that of the network's table of
//!    sockets;
//! 3. once the parent is ready, runs the program as the child of an init process, and forwards
//!    signals and the exit status.
//!
//! For a namespace that exists already, the helper makes the device in it, and ends.
//!
//! The kernel removes the namespaces with their last process. When the parent ends, however it does,
//! the helper finds its end of the control socket closed and kills the init process, with which the
//! kernel kills all others of the namespace.
//!
//! This separates the network, and is no sandbox: the program has the files and the rights of its
//! user, and the sockets of the file system. Only Linux has these namespaces.

#[cfg(target_os = "linux")]
mod control;
mod namespace;
mod plan;
#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod system;

pub use namespace::Namespace;
pub use plan::Plan;
pub use system::{Launched, Processes, SocketTable, has_terminal, help, launch};

/// The words that begin an error of a system that lacks this.
pub const NEEDS_LINUX: &str = "running a program in a network of its own needs Linux";
