//! The datagrams of all methods: sealing and opening. Used by `client`, `datagram`, `outgoing` and
//! `server`.

use std::net::SocketAddr;

use watm_core::Destination;

use crate::address::{self, Parsed};
use crate::cipher::{self, BoxedAead, Key, TAG};
use crate::config::Config;
use crate::method::Method;
use crate::refused::Refused;
use crate::salts;
use crate::stamp::{self, FROM_CLIENT, FROM_SERVER};

/// The length of a session's number and a packet's in bytes, which is a block of AES.
pub const HEADER: usize = 16;

/// The length in bytes of the nonce where there is no separate header.
const LONG_NONCE: usize = 24;

/// The header of a datagram of SIP022: its session, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Header {
    pub session: u64,
    pub packet: u64,
}

impl Header {
    fn bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&self.session.to_be_bytes());
        bytes[8..].copy_from_slice(&self.packet.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8; HEADER]) -> Header {
        let half = |range: std::ops::Range<usize>| {
            u64::from_be_bytes(bytes[range].try_into().expect("8 of 16 bytes"))
        };
        Header {
            session: half(0..8),
            packet: half(8..16),
        }
    }
}

/// One direction of a session of SIP022, with its cipher.
pub struct Session {
    pub id: u64,
    aead: BoxedAead,
}

impl Session {
    /// Makes the session with this number, under the key of its user.
    pub fn new(method: Method, key: &Key, id: u64) -> Session {
        let aead = match method.has_headers() {
            true => key.session(method, &id.to_be_bytes()),
            false => cipher::datagram_aead(method, key.bytes()),
        };
        Session { id, aead }
    }

    /// Makes a session with a random number.
    pub fn fresh(method: Method, key: &Key) -> Session {
        let mut id = [0; 8];
        cipher::random(&mut id);
        Session::new(method, key, u64::from_be_bytes(id))
    }
}

/// The content of an opened datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// The destination, or the source.
    pub address: Destination,
    pub payload: &'a [u8],
    /// The session that an answer of SIP022 belongs to.
    pub answers: Option<u64>,
}

/// The claimed origin of a datagram of SIP022.
pub struct Announced {
    pub header: Header,
    /// The index of the user in the configuration, if it has users.
    pub user: Option<usize>,
    /// The offset of the rest.
    rest: usize,
    nonce: [u8; LONG_NONCE],
}

/// Reads the header of a datagram for a server. Methods without a separate header must decrypt for
/// this, so that `datagram` changes.
pub fn announced(config: &Config, datagram: &mut [u8]) -> Result<Announced, Refused> {
    let mut nonce = [0; LONG_NONCE];
    let Some(cipher) = config.header(config.key()) else {
        return announced_inside(config, config.key(), datagram);
    };
    let (&first, rest) = datagram.split_first_chunk().ok_or(Refused::Length)?;
    let mut plain: [u8; HEADER] = first;
    cipher.decrypt(&mut plain);
    nonce[..12].copy_from_slice(&plain[4..]);
    let mut announced = Announced {
        header: Header::parse(&plain),
        user: None,
        rest: HEADER,
        nonce,
    };
    if !config.users.is_empty() {
        let mut name: [u8; HEADER] = *rest.first_chunk().ok_or(Refused::Length)?;
        cipher.decrypt(&mut name);
        for (byte, header) in name.iter_mut().zip(plain) {
            *byte ^= header;
        }
        announced.user = Some(config.user_index(&name).ok_or(Refused::User)?);
        announced.rest += HEADER;
    }
    Ok(announced)
}

/// Reads the header of an answer to a client, which is encrypted with the client's own key.
pub fn announced_answer(config: &Config, datagram: &mut [u8]) -> Result<Announced, Refused> {
    let Some(cipher) = config.header(config.last_key()) else {
        return announced_inside(config, config.last_key(), datagram);
    };
    let mut plain: [u8; HEADER] = *datagram.first_chunk().ok_or(Refused::Length)?;
    cipher.decrypt(&mut plain);
    let mut nonce = [0; LONG_NONCE];
    nonce[..12].copy_from_slice(&plain[4..]);
    Ok(Announced {
        header: Header::parse(&plain),
        user: None,
        rest: HEADER,
        nonce,
    })
}

fn announced_inside(config: &Config, key: &Key, datagram: &mut [u8]) -> Result<Announced, Refused> {
    let (nonce, sealed) = datagram
        .split_first_chunk_mut::<LONG_NONCE>()
        .ok_or(Refused::Length)?;
    let aead = cipher::datagram_aead(config.method, key.bytes());
    if !aead.open(nonce, sealed) {
        return Err(Refused::NotAuthentic);
    }
    let (text, _) = sealed.split_last_chunk::<TAG>().ok_or(Refused::Length)?;
    Ok(Announced {
        header: Header::parse(text.first_chunk().ok_or(Refused::Length)?),
        user: None,
        rest: LONG_NONCE + HEADER,
        nonce: *nonce,
    })
}

/// Opens the rest of a datagram of SIP022 that claims this session.
pub fn open<'a>(
    method: Method,
    announced: &Announced,
    session: &Session,
    from_server: bool,
    datagram: &'a mut [u8],
) -> Result<Opened<'a>, Refused> {
    let sealed = datagram.get_mut(announced.rest..).ok_or(Refused::Length)?;
    if method.has_headers() && !session.aead.open(&announced.nonce[..12], sealed) {
        return Err(Refused::NotAuthentic);
    }
    let (text, _) = sealed.split_last_chunk::<TAG>().ok_or(Refused::Length)?;
    let kind = if from_server {
        FROM_SERVER
    } else {
        FROM_CLIENT
    };
    stamp::check(text, kind)?;
    let mut rest = &text[stamp::LENGTH..];
    let mut answers = None;
    if from_server {
        let (id, behind) = rest.split_first_chunk().ok_or(Refused::Length)?;
        answers = Some(u64::from_be_bytes(*id));
        rest = behind;
    }
    let (padding, rest) = rest.split_first_chunk().ok_or(Refused::Length)?;
    let padding = usize::from(u16::from_be_bytes(*padding));
    let rest = rest.get(padding..).ok_or(Refused::Length)?;
    with_address(rest, answers)
}

/// Opens a datagram of SIP004. Also returns its salt, which the caller must admit.
pub fn open_2017<'a>(
    method: Method,
    key: &Key,
    datagram: &'a mut [u8],
) -> Result<(Key, Opened<'a>), Refused> {
    let (salt, sealed) = datagram
        .split_at_mut_checked(method.key_length())
        .ok_or(Refused::Length)?;
    let salt = Key::new(salt).ok_or(Refused::Length)?;
    let aead = key.session(method, salt.bytes());
    if !aead.open(&[0; LONG_NONCE][..aead.nonce_length()], sealed) {
        return Err(Refused::NotAuthentic);
    }
    let (text, _) = sealed.split_last_chunk::<TAG>().ok_or(Refused::Length)?;
    Ok((salt, with_address(text, None)?))
}

fn with_address(text: &[u8], answers: Option<u64>) -> Result<Opened<'_>, Refused> {
    match address::parse(text) {
        Parsed::Complete(address, length) => Ok(Opened {
            address,
            payload: &text[length..],
            answers,
        }),
        _ => Err(Refused::Address),
    }
}

/// A datagram of a session.
pub struct Message<'a> {
    /// Its number in the session.
    pub packet: u64,
    /// The client's session that an answer of a server is for.
    pub answers: Option<u64>,
    /// The destination or the source, encoded as in SOCKS5.
    pub address: &'a [u8],
    pub payload: &'a [u8],
}

/// Appends a datagram of SIP022. `keys` are those that it passes: the server's first, the user's
/// last.
pub fn seal(
    config: &Config,
    keys: &[Key],
    session: &Session,
    message: &Message<'_>,
    to: &mut Vec<u8>,
) {
    let &Message {
        packet,
        answers,
        address,
        payload,
    } = message;
    let header = Header {
        session: session.id,
        packet,
    };
    let mut nonce = [0; LONG_NONCE];
    let plain = header.bytes();
    let start;
    match keys.first().and_then(|key| config.header(key)) {
        Some(cipher) => {
            nonce[..12].copy_from_slice(&plain[4..]);
            let mut sealed = plain;
            cipher.encrypt(&mut sealed);
            to.extend_from_slice(&sealed);
            for pair in keys.windows(2) {
                let mut name = pair[1].name();
                for (byte, header) in name.iter_mut().zip(plain) {
                    *byte ^= header;
                }
                if let Some(cipher) = config.header(&pair[0]) {
                    cipher.encrypt(&mut name);
                }
                to.extend_from_slice(&name);
            }
            start = to.len();
        }
        None => {
            cipher::random(&mut nonce);
            to.extend_from_slice(&nonce);
            start = to.len();
            to.extend_from_slice(&plain);
        }
    }
    let kind = if answers.is_some() {
        FROM_SERVER
    } else {
        FROM_CLIENT
    };
    to.extend_from_slice(&stamp::now(kind));
    if let Some(id) = answers {
        to.extend_from_slice(&id.to_be_bytes());
    }
    // An empty payload shows in the length, as any other does; padding hides the shortest.
    let padding = if payload.is_empty() {
        stamp::padding()
    } else {
        0
    };
    to.extend_from_slice(&(padding as u16).to_be_bytes());
    to.resize(to.len() + padding, 0);
    to.extend_from_slice(address);
    to.extend_from_slice(payload);
    let length = session.aead.nonce_length();
    let tag = session.aead.seal(&nonce[..length], &mut to[start..]);
    to.extend_from_slice(&tag);
}

/// Appends a datagram of SIP004. Returns its salt.
pub fn seal_2017(
    method: Method,
    key: &Key,
    address: &[u8],
    payload: &[u8],
    to: &mut Vec<u8>,
) -> Key {
    let salt = salts::fresh(method, &[]);
    to.extend_from_slice(salt.bytes());
    let start = to.len();
    to.extend_from_slice(address);
    to.extend_from_slice(payload);
    let aead = key.session(method, salt.bytes());
    let tag = aead.seal(&[0; LONG_NONCE][..aead.nonce_length()], &mut to[start..]);
    to.extend_from_slice(&tag);
    salt
}

/// The most bytes added to a payload: a header, users' names, a nonce, times, an address, a tag.
pub const OVERHEAD: usize =
    HEADER * 8 + LONG_NONCE + stamp::LENGTH + 8 + 2 + address::LONGEST + TAG;

/// Encodes an address as in SOCKS5. `None` if its name does not fit.
pub fn written(destination: &Destination) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(address::LONGEST);
    address::write(destination, &mut bytes).then_some(bytes)
}

/// Returns true if two addresses are the same, where one may be an IPv4-mapped IPv6 address.
pub fn is_same(left: SocketAddr, right: SocketAddr) -> bool {
    left.port() == right.port() && left.ip().to_canonical() == right.ip().to_canonical()
}
