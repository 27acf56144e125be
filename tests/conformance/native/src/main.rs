//! The WireGuard transport without a sandbox.
//!
//! It serves the transport crate on a real UDP socket, sends back whatever arrives in a
//! flow, and prints each flow as a line of JSON when it ends. `tests/conformance` runs the
//! same client against this program and against the module, and compares the lines.

mod application;
mod host;
mod socket;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use mio::{Events, Interest, Poll, Token};
use watm_core::{Level, StartOptions, Transport, Wakeup};
use watm_wireguard::WireGuard;

use crate::host::NativeHost;

/// Serve WireGuard natively and echo every flow.
#[derive(Parser)]
struct Arguments {
    /// The address and port to listen on; port 0 takes a free one, which is printed.
    #[arg(long)]
    listen: SocketAddr,
    /// The configuration, in any format of the WireGuard module.
    #[arg(long)]
    config: PathBuf,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let mut socket = mio::net::UdpSocket::bind(arguments.listen)?;
    let mut poll = Poll::new()?;
    poll.registry().register(
        &mut socket,
        Token(0),
        Interest::READABLE | Interest::WRITABLE,
    )?;
    let address = socket.local_addr()?;

    let mut host = NativeHost::new(socket)?;
    let config = std::fs::read(&arguments.config)?;
    let options = StartOptions {
        config,
        log_level: Level::Info,
        generation: 0,
        predecessor: None,
    };
    let mut transport = WireGuard::start(options, &mut host)?;
    println!(
        "{}",
        serde_json::json!({ "event": "listening", "port": address.port() })
    );
    io::stdout().flush()?;

    let mut events = Events::with_capacity(4);
    loop {
        host.advance();
        let ready = host.take_ready();
        let timeout = match transport.process(&ready, &mut host) {
            Wakeup::Again => Some(Duration::ZERO),
            _ if host.has_ready() => Some(Duration::ZERO),
            Wakeup::At(at) => Some(at - watm_core::Host::now(&host)),
            Wakeup::OnReady | Wakeup::Finished => None,
        };
        wait(&mut poll, &mut events, timeout)?;
        if !events.is_empty() {
            host.socket_ready();
        }
    }
}

/// Wait for the socket, at most `timeout`.
fn wait(poll: &mut Poll, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match poll.poll(events, left) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
