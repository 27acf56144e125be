//! Forwards TCP connections to one destination, on one thread.

use std::env;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

/// The pause of an idle program. The standard library cannot wait for several sockets.
const PAUSE: Duration = Duration::from_millis(1);

/// A client with its connection to the destination, and what is on its way between them.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    up: Direction,
    down: Direction,
}

#[derive(Default)]
struct Direction {
    buffer: Vec<u8>,
    ended: bool,
}

impl Connection {
    fn new(client: TcpStream, destination: &str) -> io::Result<Connection> {
        let server = TcpStream::connect(destination)?;
        client.set_nonblocking(true)?;
        server.set_nonblocking(true)?;
        Ok(Connection {
            client,
            server,
            up: Direction::default(),
            down: Direction::default(),
        })
    }

    /// Passes on what is there. Returns true if there was anything.
    fn pass(&mut self) -> io::Result<bool> {
        let up = self.up.pass(&self.client, &self.server)?;
        let down = self.down.pass(&self.server, &self.client)?;
        Ok(up || down)
    }

    fn is_over(&self) -> bool {
        [&self.up, &self.down]
            .iter()
            .all(|it| it.ended && it.buffer.is_empty())
    }
}

impl Direction {
    fn pass(&mut self, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<bool> {
        let mut moved = false;
        if self.buffer.is_empty() && !self.ended {
            let mut read = [0; 16 << 10];
            if let Some(count) = unless_blocked(from.read(&mut read))? {
                self.buffer.extend_from_slice(&read[..count]);
                self.ended = count == 0;
                moved = true;
            }
        }
        if !self.buffer.is_empty()
            && let Some(count) = unless_blocked(to.write(&self.buffer))?
        {
            self.buffer.drain(..count);
            moved = true;
        }
        if self.ended && moved {
            to.shutdown(Shutdown::Write)?;
        }
        Ok(moved)
    }
}

fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [listen, destination] = arguments.as_slice() else {
        return Err(io::Error::other("usage: forward LISTEN DESTINATION"));
    };
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    println!("forwards to {destination}");
    let mut open: Vec<Connection> = Vec::new();
    loop {
        let mut idle = true;
        if let Ok((client, from)) = listener.accept() {
            match Connection::new(client, destination) {
                Ok(connection) => open.push(connection),
                Err(error) => eprintln!("{from}: {destination}: {error}"),
            }
            idle = false;
        }
        open.retain_mut(|connection| {
            let passed = connection.pass();
            idle &= !matches!(passed, Ok(true));
            passed.is_ok() && !connection.is_over()
        });
        if idle {
            sleep(PAUSE);
        }
    }
}
