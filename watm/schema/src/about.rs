//! A module's description of itself: the JSON of its section `watm.about`, which hosts read without running the module.
//! Transports have one as a constant, and [`about!`](crate::about!) puts it into the module at compile time.

use crate::{Absent, Described, Kind};

/// The version of the format, which the member `about` has. Hosts ignore members that they do not know. A change that
/// breaks them gets another number.
pub const FORMAT: u64 = 1;

/// A description of a module.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The name of the transport, in lower case with hyphens.
    pub name: &'static str,
    /// The name as people write it.
    pub title: &'static str,
    /// A sentence about the transport.
    pub summary: &'static str,
    /// True if it accepts connections or peers, and offers their flows to the application.
    pub accepts: bool,
    /// True if it carries connections of the application.
    pub dials: bool,
    /// The sockets that the host opens for a module that accepts.
    pub sockets: &'static [Socket],
    /// True if flows name a destination. Otherwise the application must know it.
    pub destinations: bool,
    /// True if only one instance may serve: see `wit/world.wit`.
    pub alone: bool,
    /// The usual port of a server.
    pub port: Option<u16>,
    /// The first step of a person who uses a client configuration, as a sentence. `None` for transports without client
    /// configurations.
    pub client: Option<&'static str>,
    /// The kinds of datagrams that name one of several sockets on one address. Without any, datagrams of one session may come to
    /// several instances.
    pub steer: &'static [Steer],
    /// The formats of its configuration.
    pub formats: &'static [Format],
}

/// A kind of datagrams that name a socket: see `datagram-socket.place` in `wit/sockets.wit`. There are at most 16.
#[derive(Debug, Clone, Copy)]
pub struct Steer {
    /// The first byte of such datagrams.
    pub kind: u8,
    /// The place of the byte that, modulo the number of sockets, is the number of the socket: at most 1231.
    pub byte: u16,
}

/// A socket of a module.
#[derive(Debug, Clone, Copy)]
pub struct Socket {
    /// The label by which the module opens it.
    pub label: &'static str,
    /// The protocol.
    pub transport: Transport,
}

const fn listener(transport: Transport) -> Socket {
    Socket {
        label: "listen",
        transport,
    }
}

/// A socket for connections, with the usual label.
pub const TCP: &[Socket] = &[listener(Transport::Tcp)];
/// A socket for datagrams, with the usual label.
pub const UDP: &[Socket] = &[listener(Transport::Udp)];
/// Both, on the same port.
pub const TCP_AND_UDP: &[Socket] = &[listener(Transport::Tcp), listener(Transport::Udp)];

/// The protocol of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// IP packets of a device.
    Packets,
}

/// A format of configurations.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// The name: `json`, `toml`, `wg` for wg(8), `mitmproxy-wireguard` for JSON with the keys of mitmproxy's own
    /// WireGuard mode, `url`.
    pub name: &'static str,
    /// The tables by their names. The first is the outermost one.
    pub tables: &'static [(&'static str, &'static [Described])],
}

/// Puts the description of a module into it. Call it once in a crate, at its top level.
#[macro_export]
macro_rules! about {
    ($about:expr) => {
        const _: () = {
            const LENGTH: usize = $crate::about::length(&$about);
            #[used]
            #[cfg_attr(target_family = "wasm", unsafe(link_section = "watm.about"))]
            static SECTION: [u8; LENGTH] = $crate::about::render(&$about);
        };
    };
}

/// The bytes of a description in JSON.
pub const fn length(about: &About) -> usize {
    written::<0>(about).length
}

/// Returns a description in JSON. `N` is its [`length`].
pub const fn render<const N: usize>(about: &About) -> [u8; N] {
    let out = written::<N>(about);
    assert!(out.length == N, "the length is that of another description");
    out.bytes
}

/// A buffer of `N` bytes, which counts the bytes beyond them without keeping them.
struct Out<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Out<N> {
    const fn byte(mut self, byte: u8) -> Self {
        if self.length < N {
            self.bytes[self.length] = byte;
        }
        self.length += 1;
        self
    }

    /// Writes text that needs no escapes.
    const fn raw(mut self, text: &str) -> Self {
        let text = text.as_bytes();
        let mut index = 0;
        while index < text.len() {
            self = self.byte(text[index]);
            index += 1;
        }
        self
    }

    /// Writes a string in JSON.
    const fn string(self, text: &str) -> Self {
        self.byte(b'"').escaped(text).byte(b'"')
    }

    const fn escaped(mut self, text: &str) -> Self {
        let text = text.as_bytes();
        let mut index = 0;
        while index < text.len() {
            self = match text[index] {
                special @ (b'"' | b'\\') => self.byte(b'\\').byte(special),
                control @ 0..0x20 => {
                    const DIGITS: &[u8; 16] = b"0123456789abcdef";
                    self.raw("\\u00")
                        .byte(DIGITS[(control >> 4) as usize])
                        .byte(DIGITS[(control & 15) as usize])
                }
                byte => self.byte(byte),
            };
            index += 1;
        }
        self
    }

    const fn number(self, number: u64) -> Self {
        let digit = b'0' + (number % 10) as u8;
        match number / 10 {
            0 => self.byte(digit),
            rest => self.number(rest).byte(digit),
        }
    }

    const fn truth(self, truth: bool) -> Self {
        self.raw(if truth { "true" } else { "false" })
    }

    /// Writes the name of a further member.
    const fn member(self, name: &str) -> Self {
        self.byte(b',').string(name).byte(b':')
    }

    /// Writes a comma before all items but the first.
    const fn item(self, index: usize) -> Self {
        if index == 0 { self } else { self.byte(b',') }
    }
}

const fn written<const N: usize>(about: &About) -> Out<N> {
    let out = Out {
        bytes: [0; N],
        length: 0,
    };
    let mut out = out
        .raw("{\"about\":")
        .number(FORMAT)
        .member("name")
        .string(about.name)
        .member("title")
        .string(about.title)
        .member("summary")
        .string(about.summary)
        .member("accepts")
        .truth(about.accepts)
        .member("dials")
        .truth(about.dials)
        .member("destinations")
        .truth(about.destinations)
        .member("alone")
        .truth(about.alone);
    if let Some(port) = about.port {
        out = out.member("port").number(port as u64);
    }
    if let Some(client) = about.client {
        out = out.member("client").string(client);
    }
    if !about.steer.is_empty() {
        out = out.member("steer").byte(b'[');
        let mut index = 0;
        while index < about.steer.len() {
            let Steer { kind, byte } = about.steer[index];
            out = out.item(index).raw("{\"type\":").number(kind as u64);
            out = out.member("byte").number(byte as u64).byte(b'}');
            index += 1;
        }
        out = out.byte(b']');
    }
    out = sockets(out.member("sockets").byte(b'['), about.sockets).byte(b']');
    out = out.member("formats").byte(b'[');
    let mut index = 0;
    while index < about.formats.len() {
        out = format(out.item(index), &about.formats[index]);
        index += 1;
    }
    out.raw("]}")
}

const fn sockets<const N: usize>(mut out: Out<N>, sockets: &[Socket]) -> Out<N> {
    let mut index = 0;
    while index < sockets.len() {
        out = out
            .item(index)
            .raw("{\"label\":")
            .string(sockets[index].label)
            .member("transport")
            .string(match sockets[index].transport {
                Transport::Tcp => "tcp",
                Transport::Udp => "udp",
                Transport::Packets => "packets",
            })
            .byte(b'}');
        index += 1;
    }
    out
}

const fn format<const N: usize>(out: Out<N>, format: &Format) -> Out<N> {
    let mut out = out
        .raw("{\"name\":")
        .string(format.name)
        .member("tables")
        .byte(b'[');
    let mut index = 0;
    while index < format.tables.len() {
        let (name, fields) = format.tables[index];
        out = out
            .item(index)
            .raw("{\"name\":")
            .string(name)
            .member("fields")
            .byte(b'[');
        let mut at = 0;
        while at < fields.len() {
            out = field(out.item(at), &fields[at]);
            at += 1;
        }
        out = out.raw("]}");
        index += 1;
    }
    out.raw("]}")
}

const fn field<const N: usize>(out: Out<N>, (field, meaning): &Described) -> Out<N> {
    let out = kind(out.raw("{\"name\":").string(field.name), field.kind);
    let out = match field.absent {
        Absent::Refused => out.member("required").truth(true),
        Absent::Number(number) => out.member("default").number(number),
        Absent::Value(value) => out.member("default").string(value),
        Absent::Means(phrase) => out.member("absent").string(phrase),
    };
    out.member("meaning").string(meaning).byte(b'}')
}

const fn kind<const N: usize>(out: Out<N>, kind: Kind) -> Out<N> {
    let out = out.member("kind");
    match kind {
        Kind::Switch => out.string("switch"),
        Kind::Number { unit, least, most } => out
            .string("number")
            .member("unit")
            .string(unit)
            .member("least")
            .number(least)
            .member("most")
            .number(most),
        Kind::Choice(words) => {
            let mut out = out.string("choice").member("words").byte(b'[');
            let mut index = 0;
            while index < words.len() {
                out = out.item(index).string(words[index]);
                index += 1;
            }
            out.byte(b']')
        }
        Kind::Text(phrase) => out.string("text").member("expected").string(phrase),
        Kind::List(phrase) => out.string("list").member("expected").string(phrase),
        Kind::Any(phrase) => out.string("any").member("expected").string(phrase),
        Kind::Table(name) => out.string("table").member("table").string(name),
    }
}
