//! Modules that follow one another behind the same socket while traffic flows.
//!
//! The host runs all of them. The newest *serves*: what arrives on the socket is given to it
//! alone. Older ones *drain*: they have flows, which cannot be moved, and at first sessions,
//! which must not be. What they need of each other goes through the mailbox.
//!
//! # Whose is a datagram, whose is a packet
//!
//! - An **initiation** is always answered by the generation that serves. Those that an older
//!   one has accepted, and what is older than those, are refused: the snapshot tells of them
//!   (`floor`), and what is accepted after a swap is told to the predecessor, which may have
//!   to serve again.
//! - Every other datagram names a session by its **index**. The upper eight bits are the
//!   generation that made it, modulo 256; the next sixteen its peer there; boringtun counts
//!   with the lower eight. So it is known at once to whom a packet of an older session goes
//!   ([`Message::Outer`]). Responses and cookies are not handed on: what began a handshake and
//!   serves no more does not complete it.
//! - A decrypted **inner packet** belongs to the stack that has its flow, by peer and 4-tuple.
//!   Who serves knows the flows of the older ones from the snapshot and hands their packets
//!   on ([`Errand::Inner`]). Who drains and has decrypted a packet for no flow of its own hands
//!   it to who serves ([`Errand::Arrived`]); a packet that was handed to it for a flow that it
//!   has not, it returns ([`Errand::Returned`]). That is final, so there is no loop: who serves
//!   forgets that the flow was elsewhere, and opens one, or answers with a reset.
//! - What a draining stack has to say leaves through who serves ([`Errand::Send`]), which
//!   encrypts. Until it has a session with the peer, it has the generation do so that has the
//!   newest one ([`Errand::Encrypt`]); its own flows work in this way from the first moment.
//!
//! # How sessions move
//!
//! 1. As soon as it serves, a generation sends an initiation to each peer that had a session.
//! 2. With the response, or with the first packet in a session that the peer began, it tells
//!    who had the newest session until then ([`Note::TakenOver`]). That one keeps it for some
//!    seconds, for datagrams that are under way. If packets go on to come in it, the peer has
//!    not seen the new session confirmed, and is sent a keepalive ([`Note::Unconfirmed`]).
//! 3. Sessions that nobody takes over are forgotten 15 seconds after their generation has
//!    stopped to serve, and who serves is told so ([`Message::Released`]).
//!
//! A generation that drains begins no handshake and answers none. It ends
//! ([`Wakeup::Finished`](watm_core::Wakeup::Finished)) when it has neither flows, nor
//! connections in TIME-WAIT, nor sessions.
//!
//! # Configuration
//!
//! Each generation keeps the configuration it was started with. A peer that the one of who
//! serves does not have, or has with another preshared key, is told to the older ones
//! ([`Note::Removed`]), who end its flows; so are those that are removed by a later change.
//! With another private key all are.
//!
//! # Roll-back
//!
//! A predecessor that is told to serve again has its flows still. It begins handshakes with
//! all peers that had a session, in new tunnels with those whose session was taken over.
//!
//! # Over streams
//!
//! A stream belongs to the instance that has accepted or dialled it, and so does the session in
//! it: sessions do not move. A draining generation goes on to encrypt and decrypt for the peers
//! that are connected to it, makes handshakes with them, and lives as long as their sessions. New
//! flows in them are who serves', by the rules above. A peer that connects again meets who
//! serves, and has its session there from then on.
//!
//! # Formats
//!
//! [`Snapshot`] begins with `watm-wireguard` and its version, which covers the messages too.
//! Numbers are big-endian; an optional field begins with 0 or 1, a list with its length in 32
//! bits. A message begins with its kind ([`Message`]). Both come from another module: they are
//! read strictly and never trusted to be whole. What is no message is counted.

mod mail;
mod message;
mod snapshot;
mod wire;

use std::collections::BTreeSet;
use std::time::Duration;

use watm_core::{ConfigError, Host, Instant, StartOptions, Token};

pub use mail::Post;
pub use message::{Errand, Key, Message, Note};
pub use snapshot::{FlowRecord, PeerRecord, Snapshot};

use crate::counters::Counters;

/// How long sessions are kept that nobody takes over: three tries of a handshake.
pub const SESSIONS_KEPT: Duration = Duration::from_secs(15);

/// How long older generations have to say that they are there: one call of each.
const ROLL_CALL: Duration = Duration::from_secs(2);

/// What a generation has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Nothing: the predecessor serves still.
    Waiting,
    /// What arrives, and whatever the older ones need.
    Serving,
    /// What it has, since it stopped to serve.
    Draining { since: Instant },
}

/// The place of this generation among the others.
pub struct Generations {
    own: u32,
    role: Role,
    serving: u32,
    /// The older ones that live, as far as is known.
    older: BTreeSet<u32>,
    /// Those of them that have not said so themselves, and the end of their time.
    unheard: Option<(Instant, BTreeSet<u32>)>,
    /// Who may have to serve again.
    predecessor: Option<u32>,
    post: Option<Post>,
}

impl Generations {
    /// Take the mailbox under this token, and read what the predecessor tells.
    pub fn start(
        options: &StartOptions,
        host: &mut dyn Host,
        token: Token,
    ) -> Result<(Generations, Option<Snapshot>), ConfigError> {
        let post = Post::open(host, token).map_err(|error| {
            ConfigError::Other(format!("the mailbox granted to WireGuard: {error}"))
        })?;
        // A transport that has nothing to hand over has nothing that we could take over.
        let snapshot = match options.predecessor.as_deref() {
            None | Some([]) => None,
            Some(bytes) => Some(Snapshot::parse(bytes).map_err(ConfigError::Other)?),
        };
        let mut older = BTreeSet::new();
        if let Some(snapshot) = &snapshot {
            older.extend(&snapshot.others);
            older.insert(snapshot.generation);
            older.remove(&options.generation);
        }
        let generations = Generations {
            own: options.generation,
            role: match options.predecessor {
                None => Role::Serving,
                Some(_) => Role::Waiting,
            },
            serving: options.generation,
            older,
            unheard: None,
            predecessor: snapshot.as_ref().map(|snapshot| snapshot.generation),
            post,
        };
        Ok((generations, snapshot))
    }

    pub fn own(&self) -> u32 {
        self.own
    }

    pub fn role(&self) -> Role {
        self.role
    }

    pub fn is_serving(&self) -> bool {
        self.role == Role::Serving
    }

    /// Who serves, as far as is known.
    pub fn serving(&self) -> u32 {
        self.serving
    }

    /// Others that live.
    pub fn older(&self) -> &BTreeSet<u32> {
        &self.older
    }

    /// Who may have to serve again, if it still can.
    pub fn predecessor(&self) -> Option<u32> {
        self.predecessor
            .filter(|number| self.older.contains(number))
    }

    /// The generation, other than this one, whose sessions have this index.
    pub fn of_index(&self, index: u32) -> Option<u32> {
        let same = |number: &&u32| **number % TAGS == index >> TAG_SHIFT;
        let newer = (!self.is_serving()).then_some(&self.serving);
        // The newest one, if numbers have gone round.
        newer
            .into_iter()
            .chain(self.older.iter().rev())
            .find(same)
            .copied()
    }

    /// This one serves from now on.
    pub fn serve(&mut self, now: Instant) -> Role {
        self.serving = self.own;
        self.unheard = (!self.older.is_empty()).then(|| (now + ROLL_CALL, self.older.clone()));
        std::mem::replace(&mut self.role, Role::Serving)
    }

    /// Another one serves from now on.
    pub fn retire(&mut self, serving: u32, now: Instant) -> Role {
        self.serving = serving;
        let role = match self.role {
            Role::Draining { since } => Role::Draining { since },
            Role::Waiting | Role::Serving => Role::Draining { since: now },
        };
        std::mem::replace(&mut self.role, role)
    }

    /// This one is there.
    pub fn heard(&mut self, generation: u32) {
        if generation != self.own {
            self.older.insert(generation);
        }
        if let Some((_, unheard)) = &mut self.unheard {
            unheard.remove(&generation);
        }
    }

    /// This one is gone; whether it was known.
    pub fn ended(&mut self, generation: u32) -> bool {
        self.older.remove(&generation)
    }

    /// Those that had ended before anybody could tell us.
    pub fn silent(&mut self, now: Instant) -> BTreeSet<u32> {
        match self.unheard.take() {
            Some((until, unheard)) if until <= now => unheard,
            pending => {
                self.unheard = pending;
                BTreeSet::new()
            }
        }
    }

    /// When there may be some.
    pub fn deadline(&self) -> Option<Instant> {
        self.unheard.as_ref().map(|(until, _)| *until)
    }

    /// Send a message with the others of this call.
    pub fn tell(&mut self, to: u32, message: &Message<'_>, counters: &mut Counters) {
        if let Some(post) = &mut self.post {
            post.send(to, message, counters);
        }
    }

    /// The mailbox, where there is one.
    pub fn post(&mut self) -> Option<&mut Post> {
        self.post.as_mut()
    }

    /// Whether there may be mail.
    pub fn has_mail(&self) -> bool {
        self.post.as_ref().is_some_and(Post::is_readable)
    }

    /// Whether there is something left to be sent.
    pub fn has_unsent(&self) -> bool {
        self.post.as_ref().is_some_and(Post::is_waiting)
    }
}

/// The upper bits of an index tell the generation.
const TAGS: u32 = 256;
const TAG_SHIFT: u32 = 24;

/// The part of a peer's number that its generation is told by. The lower 16 bits are free.
pub fn tag(generation: u32) -> u32 {
    (generation % TAGS) << PEER_BITS
}

/// Bits of a peer's number besides the [tag].
pub const PEER_BITS: u32 = 16;
