//! The same interface for systems without namespaces: every call fails.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use crate::{NEEDS_LINUX, Plan};

/// A program that was launched. There is none here.
#[derive(Debug)]
pub struct Launched(Infallible);

impl Launched {
    /// Returns the number of the helper.
    pub fn id(&self) -> u32 {
        match self.0 {}
    }

    /// Takes the device.
    pub fn take_device(&mut self) -> Option<Infallible> {
        match self.0 {}
    }

    /// Takes the table of the network's sockets.
    pub fn take_sockets(&mut self) -> Option<SocketTable> {
        match self.0 {}
    }

    /// Returns a function that blocks until the program has ended.
    pub fn watch(&self) -> io::Result<impl FnOnce() + Send + 'static> {
        match self.0 {}
        #[expect(unreachable_code, reason = "it has a type")]
        Ok(|| ())
    }

    /// Lets the program start.
    pub fn begin(&mut self) -> io::Result<()> {
        match self.0 {}
    }

    /// Sends a signal to the program.
    pub fn signal(&self, _: i32) {
        match self.0 {}
    }

    /// Kills the program.
    pub fn kill(&self) {
        match self.0 {}
    }

    /// Returns the exit status once the program has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<i32>> {
        match self.0 {}
    }

    /// Waits for the end of the program, and returns its exit status.
    pub fn wait(&mut self) -> io::Result<i32> {
        match self.0 {}
    }
}

/// The sockets of one network. There is no such table here.
#[derive(Debug)]
pub struct SocketTable(Infallible);

impl SocketTable {
    /// Fails.
    pub fn open() -> io::Result<SocketTable> {
        Err(io::Error::new(io::ErrorKind::Unsupported, NEEDS_LINUX))
    }

    /// Returns the number of the TCP socket with these ends.
    pub fn stream(&self, _: SocketAddr, _: SocketAddr) -> io::Result<Option<u32>> {
        match self.0 {}
    }

    /// Returns the number of the UDP socket with these ends.
    pub fn datagrams(&self, _: SocketAddr, _: SocketAddr) -> io::Result<Option<u32>> {
        match self.0 {}
    }
}

/// The processes of one network. There is no such thing here.
#[derive(Debug)]
pub struct Processes(Infallible);

impl Processes {
    /// Makes the finder for a table's network.
    pub fn of(table: SocketTable) -> io::Result<Processes> {
        match table.0 {}
    }

    /// Returns the path of the program with the TCP socket of these ends.
    pub fn of_stream(&self, _: SocketAddr, _: SocketAddr) -> io::Result<Option<PathBuf>> {
        match self.0 {}
    }

    /// Returns the path of the program with the UDP socket of these ends.
    pub fn of_datagrams(&self, _: SocketAddr, _: SocketAddr) -> io::Result<Option<PathBuf>> {
        match self.0 {}
    }
}

/// Fails.
pub fn launch(_: Command, _: &Plan) -> io::Result<Launched> {
    Err(io::Error::new(io::ErrorKind::Unsupported, NEEDS_LINUX))
}

/// Returns false: there is no program that could get the terminal's signals.
pub fn has_terminal() -> bool {
    false
}

/// Fails.
pub fn help(_: i32) -> i32 {
    1
}
