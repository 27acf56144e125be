//! The codec of one connection, of a client or of a server.

use std::rc::Rc;

use watm_core::{Destination, ErrorCode, FlowInfo};
use watm_stream::{Buffer, Codec};

use super::chunk::{LONGEST_2017, LONGEST_2022, Opener, Sealer};
use super::insecure::Shuffle;
use super::{Memory, request};
use crate::address::{self, Parsed};
use crate::cipher::{Key, TAG};
use crate::config::Config;
use crate::refused::Refused;
use crate::{salts, wall};

/// A connection of a client or of a server.
///
/// A server neither answers nor acts for a connection without a key: one that does not begin as it
/// must, or is a replay, is read to its end and never answered. After the handshake timeout it is
/// closed, as a silent one is.
pub struct ShadowsocksCodec {
    config: Rc<Config>,
    memory: Rc<Memory>,
    role: Role,
    /// The salt of the request, and the key that it was made with.
    request: Option<(Key, Key)>,
    /// A salt of SIP004 that is not remembered before something behind it is authentic.
    unseen: Option<Key>,
    inward: Inward,
    /// The sealer. `None` before anything was sent.
    outward: Option<Sealer>,
}

enum Role {
    Server(Option<Request>),
    Client { target: Vec<u8> },
}

/// The request that a server received.
struct Request {
    destination: Destination,
    user: Option<String>,
}

enum Inward {
    /// A server before its request has arrived.
    Request,
    /// A server of SIP022 after the first message of the request.
    Variable(Opener, Option<String>),
    /// A server of SIP004 with this part of the address.
    Address(Opener, Vec<u8>),
    /// A client before its answer has arrived.
    Answer,
    Open(Opener),
    /// A server whose client is a stranger.
    Deaf,
}

impl ShadowsocksCodec {
    pub(super) fn accepting(config: Rc<Config>, memory: Rc<Memory>) -> ShadowsocksCodec {
        ShadowsocksCodec {
            config,
            memory,
            role: Role::Server(None),
            request: None,
            unseen: None,
            inward: Inward::Request,
            outward: None,
        }
    }

    pub(super) fn dialling(
        config: Rc<Config>,
        memory: Rc<Memory>,
        target: Vec<u8>,
    ) -> ShadowsocksCodec {
        ShadowsocksCodec {
            config,
            memory,
            role: Role::Client { target },
            request: None,
            unseen: None,
            inward: Inward::Answer,
            outward: None,
        }
    }

    fn sealer(&self, key: &Key, salt: &Key) -> Sealer {
        let aead = key.session(self.config.method, salt.bytes());
        match self.config.insecure {
            true => Sealer::insecure(aead, Shuffle::new(*key)),
            false if self.config.method.is_2022() => Sealer::new(aead, LONGEST_2022),
            false => Sealer::new(aead, LONGEST_2017),
        }
    }

    fn opener(&self, key: &Key, salt: &Key) -> Opener {
        let aead = key.session(self.config.method, salt.bytes());
        match self.config.insecure {
            true => Opener::insecure(aead, Shuffle::new(*key)),
            false if self.config.method.is_2022() => Opener::new(aead, LONGEST_2022),
            false => Opener::new(aead, LONGEST_2017),
        }
    }

    /// A fresh salt. It is remembered, so that it cannot be sent back.
    fn fresh_salt(&self, prefix: &[u8]) -> Key {
        let salt = salts::fresh(self.config.method, prefix);
        if !self.config.method.is_2022() {
            self.memory.salts_2017.borrow_mut().admit(salt.bytes(), 0);
        }
        salt
    }

    /// Fails if this salt was used before.
    fn admit(&self, salt: &Key) -> Result<(), Refused> {
        let salts = match self.config.method.is_2022() {
            true => &self.memory.salts_2022,
            false => &self.memory.salts_2017,
        };
        match salts.borrow_mut().admit(salt.bytes(), wall::now()) {
            true => Ok(()),
            false => Err(Refused::Replayed),
        }
    }

    /// Remember the salt once something authentic `came`.
    fn saw(&mut self, came: bool) -> Result<(), Refused> {
        match self.unseen.take_if(|_| came) {
            Some(salt) => self.admit(&salt),
            None => Ok(()),
        }
    }

    /// Processes a step of `from`. Returns false if it needs more bytes.
    fn step(&mut self, from: &mut Buffer, application: &mut Buffer) -> Result<bool, Refused> {
        match std::mem::replace(&mut self.inward, Inward::Deaf) {
            Inward::Request if self.config.method.is_2022() => self.read_request(from),
            Inward::Request => {
                let Some(salt) = self.take_salt(from) else {
                    self.inward = Inward::Request;
                    return Ok(false);
                };
                let key = *self.config.key();
                self.inward = Inward::Address(self.opener(&key, &salt), Vec::new());
                self.request = Some((salt, key));
                self.unseen = Some(salt);
                Ok(true)
            }
            Inward::Variable(mut opener, user) => {
                let mut message = Vec::new();
                if !opener.chunk(from, |payload| message.extend_from_slice(payload))? {
                    self.inward = Inward::Variable(opener, user);
                    return Ok(false);
                }
                let (destination, payload) = request::read_variable(&message)?;
                application.extend(payload);
                self.role = Role::Server(Some(Request { destination, user }));
                self.inward = Inward::Open(opener);
                Ok(true)
            }
            Inward::Address(mut opener, mut begun) => {
                let came = opener.chunk(from, |payload| begun.extend_from_slice(payload))?;
                self.saw(came)?;
                match address::parse(&begun) {
                    Parsed::Malformed => return Err(Refused::Address),
                    Parsed::Incomplete => self.inward = Inward::Address(opener, begun),
                    Parsed::Complete(destination, length) => {
                        application.extend(&begun[length..]);
                        let user = None;
                        self.role = Role::Server(Some(Request { destination, user }));
                        self.inward = Inward::Open(opener);
                    }
                }
                Ok(came)
            }
            Inward::Answer => self.read_answer(from),
            Inward::Open(mut opener) => {
                let came = opener.chunk(from, |payload| application.extend(payload))?;
                self.saw(came)?;
                self.inward = Inward::Open(opener);
                Ok(came)
            }
            Inward::Deaf => Ok(false),
        }
    }

    /// Reads the first message of a request of SIP022: its user and its time.
    fn read_request(&mut self, from: &mut Buffer) -> Result<bool, Refused> {
        let salt_length = self.config.method.key_length();
        let identity_length = if self.config.users.is_empty() { 0 } else { 16 };
        let fixed_length = request::FIXED + TAG;
        if from.len() < salt_length + identity_length + fixed_length {
            if !self.config.segmented_header && !from.is_empty() {
                return Err(Refused::Pieces);
            }
            self.inward = Inward::Request;
            return Ok(false);
        }
        let (head, rest) = from.bytes().split_at(salt_length);
        let salt = Key::new(head).ok_or(Refused::Length)?;
        let (key, user) = match self.config.users.is_empty() {
            true => (*self.config.key(), None),
            false => {
                let mut name = *rest.first_chunk().ok_or(Refused::Length)?;
                self.config.key().identity(head).decrypt(&mut name);
                let user = self.config.user(&name).ok_or(Refused::User)?;
                (user.key, Some(user.name.clone()))
            }
        };
        from.consume(salt_length + identity_length);
        let mut opener = self.opener(&key, &salt);
        request::read_fixed(&mut opener, from)?;
        self.admit(&salt)?;
        self.request = Some((salt, key));
        self.inward = Inward::Variable(opener, user);
        Ok(true)
    }

    /// Reads the beginning of the server's stream, for a client.
    fn read_answer(&mut self, from: &mut Buffer) -> Result<bool, Refused> {
        let method = self.config.method;
        let key = *self.config.last_key();
        if !method.is_2022() {
            let Some(salt) = self.take_salt(from) else {
                self.inward = Inward::Answer;
                return Ok(false);
            };
            self.unseen = Some(salt);
            self.inward = Inward::Open(self.opener(&key, &salt));
            return Ok(true);
        }
        let salt_length = method.key_length();
        if from.len() < 2 * salt_length + request::FIXED + TAG {
            self.inward = Inward::Answer;
            return Ok(false);
        }
        let (Some(salt), Some((request, _))) = (self.take_salt(from), self.request) else {
            return Err(Refused::Answer);
        };
        let mut opener = self.opener(&key, &salt);
        request::read_answer(&request, &mut opener, from)?;
        self.inward = Inward::Open(opener);
        Ok(true)
    }

    fn take_salt(&self, from: &mut Buffer) -> Option<Key> {
        let length = self.config.method.key_length();
        let salt = Key::new(from.bytes().get(..length)?)?;
        from.consume(length);
        Some(salt)
    }
}

impl Codec for ShadowsocksCodec {
    fn begin(&mut self, network: &mut Buffer) {
        let Role::Client { target } = &self.role else {
            return;
        };
        let salt = self.fresh_salt(&self.config.prefix);
        let key = *self.config.last_key();
        let mut sealer = self.sealer(&key, &salt);
        network.extend(salt.bytes());
        if self.config.method.is_2022() {
            request::write_identities(&self.config.keys, &salt, network);
            request::write(target, &mut sealer, network);
        } else {
            sealer.chunks(target, network);
        }
        self.request = Some((salt, key));
        self.outward = Some(sealer);
    }

    fn established(&self) -> bool {
        !matches!(self.role, Role::Server(None))
    }

    fn describe(&self, info: &mut FlowInfo) {
        if let Role::Server(Some(request)) = &self.role {
            info.destination = request.destination.clone();
            info.peer.clone_from(&request.user);
        }
    }

    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        _network: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        loop {
            match self.step(from, application) {
                Ok(true) => {}
                Ok(false) => break,
                Err(refused) if self.established() => return Err(refused.into()),
                Err(refused) => {
                    let counter = match refused {
                        Refused::Replayed => &self.memory.replays,
                        _ => &self.memory.probes,
                    };
                    counter.set(counter.get() + 1);
                    self.inward = Inward::Deaf;
                    break;
                }
            }
        }
        if matches!(self.inward, Inward::Deaf) {
            from.clear();
        }
        Ok(())
    }

    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        let mut data = from.bytes();
        if self.outward.is_none() && !data.is_empty() {
            // Only a server gets here, and it has a request, or there would be no application.
            let (request, key) = self.request.ok_or(ErrorCode::InvalidState)?;
            let salt = self.fresh_salt(&[]);
            let mut sealer = self.sealer(&key, &salt);
            network.extend(salt.bytes());
            if self.config.method.is_2022() {
                let (first, rest) = data.split_at(data.len().min(sealer.longest()));
                request::write_answer(&request, first.len(), &mut sealer, network);
                sealer.message(first, network);
                data = rest;
            }
            self.outward = Some(sealer);
        }
        if let Some(sealer) = &mut self.outward {
            sealer.chunks(data, network);
        }
        from.clear();
        Ok(())
    }

    fn end_inward(&mut self, rest: &Buffer, _application: &mut Buffer) -> Result<(), ErrorCode> {
        let whole = match &self.inward {
            Inward::Open(opener) => opener.is_between(),
            // A server without data sends nothing.
            Inward::Answer => true,
            _ => false,
        };
        match whole && rest.is_empty() {
            true => Ok(()),
            false => Err(ErrorCode::Other(
                "the network's stream ended in the middle of a message".to_owned(),
            )),
        }
    }
}
