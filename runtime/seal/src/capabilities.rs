//! Capabilities in manifests, delegations, approvals and policies, with their encoding. Used by
//! `root`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::bytes::{Reader, Writer, check_count, malformed};
use crate::{NamePattern, Refused};
use watm_types::{ConnectPattern, MAX_PATTERN_BYTES};

/// Limits on entries: more than any transport needs, and small enough that the longest patterns fit
/// into a seal.
const MAX_SOCKETS: usize = 16;
const MAX_CONNECT: usize = 16;
/// Capabilities that are allowed or not, as bits of one byte.
const HOST_CRYPTO: u8 = 1;
const BIND_TRANSPARENT: u8 = 2;
const HOST_KEYS: u8 = 4;
const CAPTURE: u8 = 8;
/// The longest name pattern, in bytes.
pub(crate) const MAX_PATTERN: usize = 65;

/// The upper bound on what a module may use. The host allows less if its user granted less.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Outer sockets, by the labels that the module requests. At most 16.
    pub sockets: BTreeSet<Socket>,
    /// Destinations that the module may choose itself. At most 16.
    pub connect: BTreeSet<ConnectPattern>,
    /// True if it may use the host's ciphers.
    pub host_crypto: bool,
    /// True if its flows may connect onwards from their clients' addresses, which are not this
    /// machine's.
    pub bind_transparent: bool,
    /// True if it may sign with private keys that the host keeps.
    pub host_keys: bool,
    /// True if it may provide captures of its traffic, and the keys to decrypt them, when a user
    /// enables them.
    pub capture: bool,
    /// Linear memory of an instance, in bytes.
    pub memory_bytes: u64,
    /// CPU quota, in thousandths of one core.
    pub cpu_permille: u32,
    /// Flows open at once.
    pub flows: u32,
    /// Instances at once. A component has one, a WATER module one for each connection.
    pub instances: u32,
}

/// The kind of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SocketKind {
    /// A listener.
    Tcp,
    /// A socket for datagrams.
    Udp,
    /// A device for IP packets.
    Packets,
}

impl SocketKind {
    /// Every kind.
    pub const ALL: [SocketKind; 3] = [SocketKind::Tcp, SocketKind::Udp, SocketKind::Packets];
}

impl fmt::Display for SocketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SocketKind::Tcp => "tcp",
            SocketKind::Udp => "udp",
            SocketKind::Packets => "packets",
        })
    }
}

/// An outer socket that a user may grant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Socket {
    /// The kind.
    pub kind: SocketKind,
    /// The exact label in a manifest. The ceiling of a delegation may end it in `*`.
    pub label: NamePattern,
}

impl Capabilities {
    /// Returns every capability, for a delegation without a ceiling of its own.
    pub fn unlimited() -> Capabilities {
        let every = |kind| Socket {
            kind,
            label: "*".parse().expect("a pattern"),
        };
        let anywhere = |text: &str| text.parse().expect("a pattern");
        Capabilities {
            sockets: SocketKind::ALL.map(every).into(),
            connect: ["tcp://*:*", "udp://*:*"].map(anywhere).into(),
            host_crypto: true,
            bind_transparent: true,
            host_keys: true,
            capture: true,
            memory_bytes: u64::MAX,
            cpu_permille: u32::MAX,
            flows: u32::MAX,
            instances: u32::MAX,
        }
    }

    /// Returns the capabilities that either of the two allows.
    #[must_use]
    pub fn or(mut self, other: &Capabilities) -> Capabilities {
        self.sockets.extend(other.sockets.iter().cloned());
        self.connect.extend(other.connect.iter().cloned());
        Capabilities {
            host_crypto: self.host_crypto || other.host_crypto,
            bind_transparent: self.bind_transparent || other.bind_transparent,
            host_keys: self.host_keys || other.host_keys,
            capture: self.capture || other.capture,
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            cpu_permille: self.cpu_permille.max(other.cpu_permille),
            flows: self.flows.max(other.flows),
            instances: self.instances.max(other.instances),
            ..self
        }
    }

    /// Lists the capabilities that exceed the ceiling, one readable line each. Empty if none does.
    pub fn beyond(&self, ceiling: &Capabilities) -> Vec<String> {
        let mut beyond = Vec::new();
        for socket in &self.sockets {
            let covered =
                |other: &Socket| other.kind == socket.kind && other.label.covers(&socket.label);
            if !ceiling.sockets.iter().any(covered) {
                beyond.push(format!("socket {socket}"));
            }
        }
        for pattern in &self.connect {
            if !ceiling.connect.iter().any(|other| other.covers(pattern)) {
                beyond.push(format!("connect {pattern}"));
            }
        }
        if self.host_crypto && !ceiling.host_crypto {
            beyond.push("host-crypto".to_owned());
        }
        if self.bind_transparent && !ceiling.bind_transparent {
            beyond.push("bind-transparent".to_owned());
        }
        if self.host_keys && !ceiling.host_keys {
            beyond.push("host-keys".to_owned());
        }
        if self.capture && !ceiling.capture {
            beyond.push("capture".to_owned());
        }
        let mut number = |field: &str, asked: u64, most: u64| {
            if asked > most {
                beyond.push(format!("{field} {asked} (at most {most})"));
            }
        };
        number("memory-bytes", self.memory_bytes, ceiling.memory_bytes);
        number(
            "cpu-permille",
            self.cpu_permille.into(),
            ceiling.cpu_permille.into(),
        );
        number("flows", self.flows.into(), ceiling.flows.into());
        number("instances", self.instances.into(), ceiling.instances.into());
        beyond
    }

    /// Checks that the counts of sockets and patterns can be encoded.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        check_count("sockets", self.sockets.len(), MAX_SOCKETS)?;
        check_count("connect", self.connect.len(), MAX_CONNECT)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Capabilities, Refused> {
        let sockets = reader.list("sockets", MAX_SOCKETS, Socket::read)?;
        // Sorted by their text, as in the set.
        let connect = reader.list("connect", MAX_CONNECT, |reader| {
            let text = reader.text("connect", MAX_PATTERN_BYTES)?;
            Ok(text.parse::<ConnectPattern>()?)
        })?;
        const FIELDS: &str = "host-crypto, bind-transparent, host-keys, capture";
        let powers = reader.u8(FIELDS)?;
        if powers & !(HOST_CRYPTO | BIND_TRANSPARENT | HOST_KEYS | CAPTURE) != 0 {
            let reason = format!("{powers}; must be the sum of some of 1, 2, 4 and 8, or 0");
            return Err(malformed(FIELDS, reason));
        }
        Ok(Capabilities {
            sockets: sockets.into_iter().collect(),
            connect: connect.into_iter().collect(),
            host_crypto: powers & HOST_CRYPTO != 0,
            bind_transparent: powers & BIND_TRANSPARENT != 0,
            host_keys: powers & HOST_KEYS != 0,
            capture: powers & CAPTURE != 0,
            memory_bytes: reader.u64("memory-bytes")?,
            cpu_permille: reader.u32("cpu-permille")?,
            flows: reader.u32("flows")?,
            instances: reader.u32("instances")?,
        })
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.count(self.sockets.len());
        for socket in &self.sockets {
            writer.u8(match socket.kind {
                SocketKind::Tcp => 1,
                SocketKind::Udp => 2,
                SocketKind::Packets => 3,
            });
            writer.record(socket.label.as_str().as_bytes());
        }
        writer.count(self.connect.len());
        for pattern in &self.connect {
            writer.record(pattern.as_str().as_bytes());
        }
        let power = |has: bool, bit: u8| if has { bit } else { 0 };
        writer
            .u8(power(self.host_crypto, HOST_CRYPTO)
                | power(self.bind_transparent, BIND_TRANSPARENT)
                | power(self.host_keys, HOST_KEYS)
                | power(self.capture, CAPTURE))
            .u64(self.memory_bytes)
            .u32(self.cpu_permille)
            .u32(self.flows)
            .u32(self.instances);
    }
}

impl Socket {
    fn read(reader: &mut Reader<'_>) -> Result<Socket, Refused> {
        let kind = match reader.u8("socket kind")? {
            1 => SocketKind::Tcp,
            2 => SocketKind::Udp,
            3 => SocketKind::Packets,
            other => {
                let reason = format!("{other}; must be 1 (tcp), 2 (udp) or 3 (packets)");
                return Err(malformed("socket kind", reason));
            }
        };
        Ok(Socket {
            kind,
            label: reader.text("socket label", MAX_PATTERN)?.parse()?,
        })
    }
}

/// Parses the form that `Display` writes: `udp listen`.
impl FromStr for Socket {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Socket, Refused> {
        let named = text.split_once(' ').and_then(|(word, label)| {
            let mut kinds = SocketKind::ALL.into_iter();
            Some((kinds.find(|kind| kind.to_string() == word)?, label))
        });
        let Some((kind, label)) = named else {
            let reason =
                format!("{text:?}; must be tcp, udp or packets and a label, such as udp listen");
            return Err(malformed("socket", reason));
        };
        Ok(Socket {
            kind,
            label: label.parse()?,
        })
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Capabilities {
        Capabilities::default()
    }

    /// Capabilities with one power each, and the text that names it.
    fn powers() -> Vec<(Capabilities, &'static str)> {
        let socket = |text: &str| [text.parse().expect("a socket")].into();
        let pattern = |text: &str| [text.parse().expect("a pattern")].into();
        vec![
            (
                Capabilities {
                    sockets: socket("udp listen"),
                    ..none()
                },
                "socket udp listen",
            ),
            (
                Capabilities {
                    connect: pattern("tcp://a:1"),
                    ..none()
                },
                "connect tcp://a:1",
            ),
            (
                Capabilities {
                    host_crypto: true,
                    ..none()
                },
                "host-crypto",
            ),
            (
                Capabilities {
                    bind_transparent: true,
                    ..none()
                },
                "bind-transparent",
            ),
            (
                Capabilities {
                    host_keys: true,
                    ..none()
                },
                "host-keys",
            ),
            (
                Capabilities {
                    capture: true,
                    ..none()
                },
                "capture",
            ),
            (
                Capabilities {
                    memory_bytes: 1,
                    ..none()
                },
                "memory-bytes 1 (at most 0)",
            ),
            (
                Capabilities {
                    cpu_permille: 1,
                    ..none()
                },
                "cpu-permille 1 (at most 0)",
            ),
            (Capabilities { flows: 1, ..none() }, "flows 1 (at most 0)"),
            (
                Capabilities {
                    instances: 1,
                    ..none()
                },
                "instances 1 (at most 0)",
            ),
        ]
    }

    #[test]
    fn a_power_is_beyond_capabilities_without_it() {
        for (power, shown) in powers() {
            assert_eq!(power.beyond(&none()), [shown]);
            assert_eq!(power.beyond(&power), [""; 0]);
            assert_eq!(none().beyond(&power), [""; 0]);
            assert_eq!(power.beyond(&Capabilities::unlimited()), [""; 0]);
            for (other, _) in powers().iter().filter(|(other, _)| *other != power) {
                assert_eq!(power.beyond(other), [shown]);
            }
        }
    }

    #[test]
    fn a_union_has_the_powers_of_both() {
        let mut all = none();
        for (power, _) in powers() {
            assert_eq!(power.clone().or(&none()), power);
            assert_eq!(none().or(&power), power);
            assert_eq!(power.clone().or(&power), power);
            all = all.or(&power);
            assert_eq!(power.beyond(&all), [""; 0]);
        }
        assert_eq!(all.beyond(&none()).len(), powers().len());
    }

    #[test]
    fn written_capabilities_are_read_again_and_unknown_powers_are_refused() {
        for (power, _) in powers() {
            let mut writer = Writer::default();
            power.write(&mut writer);
            let bytes = writer.finish();
            let mut reader = Reader::new(&bytes);
            assert_eq!(Capabilities::read(&mut reader), Ok(power));
            assert_eq!(reader.end("capabilities"), Ok(()));
        }
        let mut writer = Writer::default();
        none().write(&mut writer);
        let mut bytes = writer.finish();
        // The byte of powers follows two empty lists.
        for unknown in [16, 32, 64, 128] {
            bytes[2] = unknown;
            assert!(Capabilities::read(&mut Reader::new(&bytes)).is_err());
        }
    }
}
