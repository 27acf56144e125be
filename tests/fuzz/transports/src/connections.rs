//! Handmade TCP connections with a model of their data: the position determines each byte, so that
//! a reader can check it.

use std::net::SocketAddr;

use smoltcp::wire::TcpControl;

use crate::packet;
use crate::program::Program;
use crate::support::inner::StreamEnd;
use crate::support::inner::packets::{Segment, Tcp, syn};

/// Connections that a program may have at a time.
const COUNT: usize = 4;

/// The first client port, and that of the second connection, and so on.
const PORT: u16 = 4000;

/// One side of several connections, each from a port of its own.
pub struct Connections {
    source: SocketAddr,
    destination: SocketAddr,
    /// True if it sends nothing after its FIN, and retransmits only the bytes that it sent before.
    lawful: bool,
    ends: [End; COUNT],
}

/// The state of one connection.
#[derive(Clone, Copy, Default)]
struct End {
    /// The sequence number of the other side's first byte.
    first: Option<u32>,
    /// The next one that is expected of it.
    expected: u32,
    /// The next one to send.
    next: u32,
    /// The end of all that was sent, after the SYN.
    sent: u32,
    /// The sequence number of the FIN, once it was sent.
    fin: Option<u32>,
}

impl Connections {
    /// Returns connections of a peer that keeps to TCP, except in the order and the number of its
    /// segments.
    pub fn lawful(source: SocketAddr, destination: SocketAddr) -> Self {
        Connections {
            source,
            destination,
            lawful: true,
            ends: [End::default(); COUNT],
        }
    }

    /// Returns connections of a peer that does not keep to TCP.
    pub fn lawless(source: SocketAddr, destination: SocketAddr) -> Self {
        Connections {
            lawful: false,
            ..Self::lawful(source, destination)
        }
    }

    fn address(&self, number: usize) -> SocketAddr {
        SocketAddr::new(self.source.ip(), PORT + number as u16)
    }

    /// A segment on one of the connections, with the right bytes for its place.
    pub fn segment(&mut self, program: &mut Program<'_>) -> Vec<u8> {
        let number = program.below(COUNT);
        let (source, destination) = (self.address(number), self.destination);
        let start = initial(number).wrapping_add(1);
        let end = &mut self.ends[number];
        let kind = program.below(16);
        if kind == 0 || end.first.is_none() {
            return syn(source, destination, initial(number));
        }
        let mut control = match kind {
            1 => TcpControl::Fin,
            2 => TcpControl::Rst,
            _ => TcpControl::Psh,
        };
        // Ahead of, at, or behind what comes next.
        let mut sequence = match program.below(4) {
            0 => end.next.wrapping_add(program.word().into()),
            1 => end.next.wrapping_sub(program.word().into()),
            _ => end.next,
        };
        let mut length = match program.below(3) {
            0 => 0,
            1 => program.below(1400) as u32,
            _ => 1200,
        };
        // Nothing comes before the first byte.
        if is_after(start, sequence) {
            sequence = start;
        }
        if self.lawful {
            if let Some(fin) = end.fin {
                sequence = earlier(sequence, fin);
                length = length.min(fin.wrapping_sub(sequence));
            }
            let reach = sequence.wrapping_add(length);
            if control == TcpControl::Fin && end.fin.is_none_or(|fin| fin == reach) {
                if is_after(end.sent, reach) {
                    control = TcpControl::Psh;
                } else {
                    end.fin = Some(reach);
                }
            } else if control == TcpControl::Fin {
                control = TcpControl::Psh;
            }
            if is_after(reach, end.sent) {
                end.sent = reach;
            }
        }
        let payload: Vec<u8> = (0..length)
            .map(|at| byte(sequence.wrapping_add(at)))
            .collect();
        let gap = program.one_in(4).then(|| u32::from(program.word()));
        Tcp {
            source,
            destination,
            control,
            sequence,
            acknowledges: Some(match program.below(8) {
                0 => end.expected.wrapping_sub(program.word().into()),
                1 => end.expected.wrapping_add(program.word().into()),
                _ => end.expected,
            }),
            window: program.choose(&[65535, 1, 0, 1000]),
            scale: None,
            payload: &payload,
            sack: gap.map(|gap| {
                let start = end.expected.wrapping_add(gap);
                (start, start.wrapping_add(1200))
            }),
        }
        .packet()
    }

    /// Takes a packet of the stack: checks its data, and records it.
    pub fn receive(&mut self, packet: &[u8]) {
        let Some((number, segment)) = self.learn(packet) else {
            return;
        };
        // Without a first byte, it answers a segment from before a reset.
        let Some(first) = self.ends[number].first else {
            return;
        };
        // smoltcp's keepalives repeat one sent byte with another value (RFC 9293 section 3.8.4
        // allows garbage).
        let known = is_after(self.ends[number].expected, segment.sequence);
        if segment.payload == [0] && known {
            return;
        }
        let place = segment.sequence.wrapping_sub(first);
        for (at, said) in (0..).zip(&segment.payload) {
            assert_eq!(*said, byte(place.wrapping_add(at)), "a wrong byte is sent");
        }
    }

    /// Takes a packet of the stack and records its data. Returns the connection and the segment, or
    /// `None` if it is for no connection.
    pub fn learn(&mut self, packet: &[u8]) -> Option<(usize, Segment)> {
        let (address, port, segment) = packet::read_tcp(packet)?;
        let number = usize::from(port.wrapping_sub(PORT));
        let end = self.ends.get_mut(number)?;
        if address != self.source.ip() {
            return None;
        }
        if segment.reset {
            *end = End::default();
            return None;
        }
        if let Some(acknowledged) = segment.acknowledges {
            end.next = acknowledged;
        }
        if segment.syn {
            let first = segment.sequence.wrapping_add(1);
            if end.first != Some(first) {
                // A new connection.
                end.sent = initial(number).wrapping_add(1);
                end.fin = None;
            }
            end.first = Some(first);
            end.expected = first;
        } else if segment.sequence == end.expected {
            let length = segment.payload.len() as u32 + u32::from(segment.fin);
            end.expected = end.expected.wrapping_add(length);
        }
        Some((number, segment))
    }
}

/// The sequence number of the SYN of a connection: one of them wraps soon.
fn initial(number: usize) -> u32 {
    [100, 0xffff_ff00, 0x7fff_fff0, 7][number]
}

fn is_after(number: u32, other: u32) -> bool {
    number.wrapping_sub(other) as i32 > 0
}

fn earlier(number: u32, other: u32) -> u32 {
    if is_after(number, other) {
        other
    } else {
        number
    }
}

/// The byte at this place.
pub fn byte(place: u32) -> u8 {
    (place.wrapping_mul(0x9e37_79b1) >> 24) as u8
}

/// The application's side of a connection of [`Connections`].
pub struct Reader {
    stream: StreamEnd,
    number: usize,
    read: u32,
    written: u32,
}

impl Reader {
    /// `None` if the stream is of another port.
    pub fn of(stream: &StreamEnd) -> Option<Self> {
        let number = usize::from(stream.info().source.port().wrapping_sub(PORT));
        (number < COUNT).then(|| Reader {
            stream: stream.clone(),
            number,
            read: 0,
            written: 0,
        })
    }

    /// Do something that an application does.
    pub fn act(&mut self, program: &mut Program<'_>) {
        match program.below(8) {
            0 => self.stream.close(),
            1 => self.stream.abort(),
            2 => self.stream.set_room(program.below(4000)),
            3 | 4 => {
                let length = program.choose(&[1, 100, 5000, 70_000]);
                let data: Vec<u8> = (0..length).map(|at| byte(self.written + at)).collect();
                self.written += length;
                self.stream.write(&data);
            }
            _ => self.read(),
        }
    }

    /// Read, and check every byte.
    pub fn read(&mut self) {
        let data = self.stream.read();
        let start = initial(self.number).wrapping_add(1).wrapping_add(self.read);
        for (at, said) in (0..).zip(&data) {
            assert_eq!(*said, byte(start.wrapping_add(at)), "a wrong byte is read");
        }
        self.read += data.len() as u32;
    }
}
