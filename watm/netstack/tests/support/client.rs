//! The peer's own network stack, built on smoltcp.

use std::collections::VecDeque;
use std::net::SocketAddr;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};
use smoltcp::time::Instant as Time;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use watm_core::Instant;

/// A peer's own network stack, with large buffers.
pub struct Client {
    interface: Interface,
    device: Queues,
    pub sockets: SocketSet<'static>,
    next_port: u16,
    /// The size of each buffer in bytes.
    buffer: usize,
}

/// The usual buffer size in bytes: more than the stack's largest window.
const BUFFER: usize = 4 << 20;

impl Client {
    pub fn new(mtu: usize, seed: u64) -> Self {
        Self::with_buffer(mtu, seed, BUFFER)
    }

    /// A client with buffers of this size for each connection.
    pub fn with_buffer(mtu: usize, seed: u64, buffer: usize) -> Self {
        let mut device = Queues {
            mtu,
            ..Queues::default()
        };
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut device, Time::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses
                .push(IpCidr::new(IpAddress::v4(10, 0, 0, 2), 0))
                .unwrap();
            let v6 = IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, 2);
            addresses.push(IpCidr::new(v6, 0)).unwrap();
        });
        Client {
            interface,
            device,
            sockets: SocketSet::new(Vec::new()),
            next_port: 40_000,
            buffer,
        }
    }

    /// Waits for one connection to this address, of any host.
    pub fn listen(&mut self, address: SocketAddr) -> SocketHandle {
        self.interface.set_any_ip(true);
        let buffer = || SocketBuffer::new(vec![0; self.buffer]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_congestion_control(CongestionControl::Reno);
        socket
            .listen((IpAddress::from(address.ip()), address.port()))
            .unwrap();
        self.sockets.add(socket)
    }

    pub fn connect(&mut self, destination: SocketAddr) -> SocketHandle {
        let buffer = || SocketBuffer::new(vec![0; self.buffer]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_congestion_control(CongestionControl::Reno);
        self.next_port += 1;
        socket
            .connect(
                self.interface.context(),
                (IpAddress::from(destination.ip()), destination.port()),
                self.next_port,
            )
            .unwrap();
        self.sockets.add(socket)
    }

    pub fn socket(&mut self, handle: SocketHandle) -> &mut Socket<'static> {
        self.sockets.get_mut(handle)
    }

    pub fn receive(&mut self, packet: Vec<u8>) {
        self.device.incoming.push_back(packet);
    }

    pub fn poll(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.interface
            .poll(time(now), &mut self.device, &mut self.sockets);
        std::mem::take(&mut self.device.outgoing)
    }

    pub fn next(&mut self, now: Instant) -> Option<Instant> {
        let at = self.interface.poll_at(time(now), &self.sockets)?;
        Some(Instant(at.total_micros().max(0) as u64 * 1000))
    }
}

fn time(now: Instant) -> Time {
    Time::from_micros((now.0 / 1000) as i64)
}

#[derive(Default)]
struct Queues {
    mtu: usize,
    incoming: VecDeque<Vec<u8>>,
    outgoing: Vec<Vec<u8>>,
}

struct Incoming(Vec<u8>);
struct Outgoing<'a>(&'a mut Vec<Vec<u8>>);

impl RxToken for Incoming {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let mut packet = vec![0; length];
        let result = write(&mut packet);
        self.0.push(packet);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Incoming;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _: Time) -> Option<(Incoming, Outgoing<'_>)> {
        let packet = self.incoming.pop_front()?;
        Some((Incoming(packet), Outgoing(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Time) -> Option<Outgoing<'_>> {
        Some(Outgoing(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}
