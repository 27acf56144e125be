//! A connection that is checked to the byte.

use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::iface::SocketHandle;

use super::Line;
use super::inner::StreamEnd;

/// The longest time until a flow is offered.
const OPEN: Duration = Duration::from_secs(2);

/// The longest time of an exchange.
const EXCHANGE: Duration = Duration::from_secs(300);

/// A TCP connection of a client, and the application's end of it.
pub struct Talk {
    client: usize,
    handle: SocketHandle,
    /// The generation that offered it.
    pub generation: u32,
    pub stream: StreamEnd,
    up: u32,
    down: u32,
}

impl Talk {
    /// Opens a connection.
    pub fn open(line: &mut Line, client: usize, to: &str) -> Talk {
        Self::open_within(line, client, to, OPEN)
    }

    /// The same, over a network where it may take longer.
    pub fn open_within(line: &mut Line, client: usize, to: &str, limit: Duration) -> Talk {
        let to: SocketAddr = to.parse().unwrap();
        let stack = line.clients[client].stack.as_mut().unwrap();
        let handle = stack.connect(to);
        let streams = |line: &mut Line| line.newest().host.app.streams().len();
        let before = streams(line);
        let opened = line.run_until(limit, |line| streams(line) > before);
        assert!(opened, "the flow is offered in time");
        let stream = line.newest().host.app.streams().last().unwrap().clone();
        assert_eq!(stream.info().destination, to.into());
        Talk {
            client,
            handle,
            generation: line.serving,
            stream,
            up: 0,
            down: 0,
        }
    }

    /// A connection that the application has dialled and the client accepted.
    pub fn dialled(line: &Line, client: usize, handle: SocketHandle, stream: StreamEnd) -> Talk {
        Talk {
            client,
            handle,
            generation: line.serving,
            stream,
            up: 0,
            down: 0,
        }
    }

    /// Sends this many bytes one way, then as many the other way.
    pub fn exchange(&mut self, line: &mut Line, bytes: u32) {
        let data: Vec<u8> = (self.up..self.up + bytes).map(|n| (n / 5) as u8).collect();
        let (mut sent, mut came) = (0, Vec::new());
        let done = line.run_until(EXCHANGE, |line| {
            came.extend(self.stream.read());
            let stack = line.clients[self.client].stack.as_mut().unwrap();
            let socket = stack.socket(self.handle);
            if sent < data.len() && socket.can_send() {
                sent += socket.send_slice(&data[sent..]).unwrap();
            }
            came.len() >= data.len()
        });
        assert!(done && came == data, "{} of {bytes} came up", came.len());
        self.up += bytes;

        let (start, end) = (self.down, self.down + bytes);
        let data: Vec<u8> = (start..end).map(|n| (n / 3) as u8).collect();
        self.stream.write(&data);
        let mut came = Vec::new();
        let done = line.run_until(EXCHANGE, |line| {
            let stack = line.clients[self.client].stack.as_mut().unwrap();
            let socket = stack.socket(self.handle);
            if socket.can_recv() {
                let _ = socket.recv(|bytes| {
                    came.extend_from_slice(bytes);
                    (bytes.len(), ())
                });
            }
            came.len() >= data.len()
        });
        assert!(done && came == data, "{} of {bytes} came down", came.len());
        self.down = end;
        assert!(!self.stream.gone());
    }

    /// Sends data that need not arrive.
    pub fn send(&self, line: &mut Line, data: &[u8]) {
        let stack = line.clients[self.client].stack.as_mut().unwrap();
        stack.socket(self.handle).send_slice(data).unwrap();
    }

    /// Closes both ends.
    pub fn close(self, line: &mut Line) {
        self.stream.close();
        let stack = line.clients[self.client].stack.as_mut().unwrap();
        stack.socket(self.handle).close();
        let closed = line.run_until(Duration::from_secs(60), |_| self.stream.gone());
        assert!(closed && self.stream.finished());
    }
}
