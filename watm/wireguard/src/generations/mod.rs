//! The succession of modules behind the same socket, while traffic flows: the rules and the
//! messages. `transport/handover.rs` and `peer/handover.rs` act by them.
//!
//! The host runs all of them. The newest *serves*: it alone gets the datagrams of the socket. Older
//! ones *drain*: they have flows, which cannot be moved, and at first sessions, which must not be.
//! They exchange everything else through the mailbox.
//!
//! # Owners of datagrams and packets
//!
//! - An **initiation** is always answered by the serving generation. It refuses initiations that an
//!   older generation has accepted, and older ones: the snapshot contains them (`floor`). The
//!   initiations that it accepts after a swap are reported to the predecessor, which may have to
//!   serve again.
//! - Every other datagram names a session by its **index**. The upper eight bits are the tag of
//!   the generation that made it (`home`); the next sixteen are its peer there; boringtun counts with
//!   the lower eight. The index thus tells at once which generation a packet of an older session goes to
//!   ([`Message::Outer`]). Responses and cookies are not forwarded: a generation that no longer
//!   serves does not complete the handshakes that it began.
//! - A decrypted **inner packet** belongs to the stack that has its flow, by peer and 4-tuple. The
//!   serving generation knows the flows of the older ones from the snapshot and forwards their
//!   packets ([`Errand::Inner`]). A draining generation that has decrypted a packet for no flow of
//!   its own forwards it to the serving one ([`Errand::Arrived`]). It returns a packet that was
//!   forwarded to it for a flow that it does not have ([`Errand::Returned`]). A returned packet is
//!   not forwarded again, so that there is no loop: the serving generation forgets the entry, and
//!   opens a flow or answers with a reset.
//! - The packets of a draining stack leave through the serving generation ([`Errand::Send`]), which
//!   encrypts them. Until it has a session with the peer, it asks the generation with the newest
//!   session to do so ([`Errand::Encrypt`]); its own flows work in this way from the first moment.
//!
//! # How sessions move
//!
//! 1. As soon as it serves, a generation sends an initiation to each peer that had a session.
//! 2. With the response, or with the first packet in a session that the peer began, it tells the
//!    generation that had the newest session until then ([`Note::TakenOver`]). That one keeps its
//!    session for a few seconds, for datagrams on their way. If packets keep arriving in it, the
//!    peer has not seen the new session confirmed, and gets a keepalive ([`Note::Unconfirmed`]).
//! 3. Sessions that are not taken over are forgotten 15 seconds after their generation stopped
//!    serving. The serving generation is then informed ([`Message::Released`]).
//!
//! A generation that drains begins no handshake and answers none. It ends
//! ([`Wakeup::Finished`](watm_core::Wakeup::Finished)) when it has neither flows, nor
//! connections in TIME-WAIT, nor sessions.
//!
//! # Configuration
//!
//! Each generation keeps the configuration it was started with. The serving generation tells the
//! older ones about peers that its configuration lacks, or has with another preshared key
//! ([`Note::Removed`]), and they end the flows of these peers. Later removals are handled in the
//! same way. With another private key, all peers are removed.
//!
//! # Rollback
//!
//! A predecessor that serves again still has its flows. It begins handshakes with all peers that
//! had a session. If a session was taken over, the handshake uses a new tunnel.
//!
//! # Over streams
//!
//! A stream belongs to the instance that has accepted or dialled it, and so does the session in it:
//! sessions do not move. A draining generation continues to encrypt and decrypt for the peers that
//! are connected to it, makes handshakes with them, and lives as long as their sessions. New flows
//! in these sessions belong to the serving generation, by the rules above. A peer that connects
//! again reaches the serving generation, and has its session there from then on.
//!
//! # Formats
//!
//! [`Snapshot`] begins with `watm-wireguard` and its version, which covers the messages too.
//! Numbers are big-endian. An optional field begins with 0 or 1, a list with its length in 32 bits.
//! A message begins with its kind ([`Message`]). Both formats come from another module: they are
//! parsed strictly and never trusted to be complete. Malformed messages are counted.

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
use crate::home::Place;

/// The time for which sessions are kept that are not taken over: three tries of a handshake.
pub const SESSIONS_KEPT: Duration = Duration::from_secs(15);

/// The time in which older generations report that they live: one call of each.
const ROLL_CALL: Duration = Duration::from_secs(2);

/// The duty of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// None: the predecessor still serves.
    Waiting,
    /// Datagrams of the socket, and requests of the older generations.
    Serving,
    /// Its remaining flows and sessions, since it stopped serving.
    Draining { since: Instant },
}

/// The role of this generation, and its knowledge of the others.
pub struct Generations {
    own: u32,
    place: Place,
    role: Role,
    serving: u32,
    /// Older generations that live, as far as is known.
    older: BTreeSet<u32>,
    /// Those among them that have not reported yet, and the deadline for it.
    unheard: Option<(Instant, BTreeSet<u32>)>,
    /// The generation that may have to serve again.
    predecessor: Option<u32>,
    post: Option<Post>,
}

impl Generations {
    /// Takes the mailbox under this token, and reads the predecessor's snapshot.
    pub fn start(
        options: &StartOptions,
        place: Place,
        host: &mut dyn Host,
        token: Token,
    ) -> Result<(Generations, Option<Snapshot>), ConfigError> {
        let post = Post::open(host, token).map_err(|error| {
            ConfigError::Other(format!("the mailbox granted to WireGuard: {error}"))
        })?;
        // An empty snapshot has nothing to take over.
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
            place,
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

    /// The serving generation, as far as is known.
    pub fn serving(&self) -> u32 {
        self.serving
    }

    /// Other generations that live.
    pub fn older(&self) -> &BTreeSet<u32> {
        &self.older
    }

    /// The generation that may have to serve again, if it still can.
    pub fn predecessor(&self) -> Option<u32> {
        self.predecessor
            .filter(|number| self.older.contains(number))
    }

    /// The generation, other than this one, whose sessions have this index.
    pub fn of_index(&self, index: u32) -> Option<u32> {
        let same = |number: &&u32| self.place.tag(**number) == index >> TAG_SHIFT;
        let newer = (!self.is_serving()).then_some(&self.serving);
        // Choose the newest generation, if the numbers have wrapped.
        newer
            .into_iter()
            .chain(self.older.iter().rev())
            .find(same)
            .copied()
    }

    /// Serve from now on. Returns the role before.
    pub fn serve(&mut self, now: Instant) -> Role {
        self.serving = self.own;
        self.unheard = (!self.older.is_empty()).then(|| (now + ROLL_CALL, self.older.clone()));
        std::mem::replace(&mut self.role, Role::Serving)
    }

    /// Retire: `serving` serves from now on. Returns the role before.
    pub fn retire(&mut self, serving: u32, now: Instant) -> Role {
        self.serving = serving;
        let role = match self.role {
            Role::Draining { since } => Role::Draining { since },
            Role::Waiting | Role::Serving => Role::Draining { since: now },
        };
        std::mem::replace(&mut self.role, role)
    }

    /// Record that this generation lives.
    pub fn heard(&mut self, generation: u32) {
        if generation != self.own {
            self.older.insert(generation);
        }
        if let Some((_, unheard)) = &mut self.unheard {
            unheard.remove(&generation);
        }
    }

    /// Record that this generation is gone. Returns true if it was known.
    pub fn ended(&mut self, generation: u32) -> bool {
        self.older.remove(&generation)
    }

    /// Returns, after the deadline, generations that had ended before they could be heard.
    pub fn silent(&mut self, now: Instant) -> BTreeSet<u32> {
        match self.unheard.take() {
            Some((until, unheard)) if until <= now => unheard,
            pending => {
                self.unheard = pending;
                BTreeSet::new()
            }
        }
    }

    /// The deadline after which [`silent`](Self::silent) may return some.
    pub fn deadline(&self) -> Option<Instant> {
        self.unheard.as_ref().map(|(until, _)| *until)
    }

    /// Send a message with the others of this call.
    pub fn tell(&mut self, to: u32, message: &Message<'_>, counters: &mut Counters) {
        if let Some(post) = &mut self.post {
            post.send(to, message, counters);
        }
    }

    /// The mailbox, if there is one.
    pub fn post(&mut self) -> Option<&mut Post> {
        self.post.as_mut()
    }

    /// Returns true if there may be mail.
    pub fn has_mail(&self) -> bool {
        self.post.as_ref().is_some_and(Post::is_readable)
    }

    /// Returns true if messages wait to be sent.
    pub fn has_unsent(&self) -> bool {
        self.post.as_ref().is_some_and(Post::is_waiting)
    }
}

/// Bits of an index besides the tag.
const TAG_SHIFT: u32 = 24;

/// Bits of a peer's number besides the tag.
pub const PEER_BITS: u32 = 16;
