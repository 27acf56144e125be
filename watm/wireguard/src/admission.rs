//! Limits on handshakes. A key exchange costs half a millisecond in a module, so strangers must
//! neither cause many of them nor keep others from theirs. Used by `receive` and `transport`.
//!
//! 1. A message with a wrong mac1 comes from a sender that does not know the server's public key.
//!    It is dropped, and counts for nothing else.
//! 2. Up to `HandshakesPerSecond` messages a second are answered without further proof. One address
//!    gets at most three quarters of them, and one port of it three quarters of these. The rest is
//!    left to other addresses, and to other clients behind the same address.
//! 3. Beyond that, the sender gets a cookie (WireGuard paper, section 5.4.7). A message with a
//!    valid mac2 then proves that its sender receives at its address. Such messages have larger
//!    limits.
//!
//! Clients act on a cookie when they retransmit, five seconds later. A flood from one address
//! therefore delays no other address. A flood from several addresses, which together take
//! everything, delays new tunnels by these five seconds.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use boringtun::noise::TunnResult;
use boringtun::noise::errors::WireGuardError;
use boringtun::noise::rate_limiter::RateLimiter;
use watm_core::Instant;

use crate::config::Config;

/// The size of a cookie reply, in bytes.
pub const COOKIE_REPLY: usize = 64;

/// The most handshakes answered in a second, as a multiple of `HandshakesPerSecond`: even senders
/// that prove their address can be too many.
const PROVEN_LIMIT: u64 = 10;

/// Handshakes answered in one call: a tenth of a second's work, of the whole second that a host
/// allows by default. Those beyond are lost, and their senders repeat them.
const CALL_LIMIT: u64 = 256;

/// The time over which handshakes are counted.
const PERIOD: Duration = Duration::from_secs(1);

/// The verdict on a handshake message.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// The message may cost a key exchange.
    Answer,
    /// The sender must prove its address with this cookie reply.
    Prove(&'a [u8]),
    /// The message is not for the server's public key.
    InvalidMac,
    /// The datagram is not a handshake message.
    Malformed,
    /// The limit is exceeded, even for senders that proved their address.
    TooMany,
}

/// Decides which handshake messages are answered. See the module's documentation.
pub struct Admission {
    /// Checks both MACs and writes cookie replies.
    cookies: RateLimiter,
    per_second: u64,
    /// The start of the current period.
    since: Instant,
    /// Messages answered in this period, and those among them without a valid mac2.
    answered: u64,
    unproven: u64,
    /// The same counts by sender. Only answered messages have an entry.
    by_address: BTreeMap<IpAddr, Count>,
    by_port: BTreeMap<SocketAddr, u64>,
    /// Messages answered in this call.
    in_call: u64,
}

/// Messages of one address that were answered.
#[derive(Default)]
struct Count {
    unproven: u64,
    proven: u64,
}

impl Admission {
    pub fn new(config: &Config, now: Instant) -> Self {
        Admission {
            // A limit of zero makes a reply available for every message. `judge` decides whether it
            // is sent.
            cookies: RateLimiter::new(&config.public_key, 0),
            per_second: config.limits.handshakes_per_second.into(),
            since: now,
            answered: 0,
            unproven: 0,
            by_address: BTreeMap::new(),
            by_port: BTreeMap::new(),
            in_call: 0,
        }
    }

    /// Starts a call of the host, which has its own limit.
    pub fn begin_call(&mut self) {
        self.in_call = 0;
    }

    /// Judges a handshake message from `from`. Writes a cookie reply to `reply`.
    pub fn judge<'a>(
        &mut self,
        message: &[u8],
        from: SocketAddr,
        now: Instant,
        reply: &'a mut [u8; COOKIE_REPLY],
    ) -> Verdict<'a> {
        self.renew(now);
        let address = network(from.ip());
        match self.cookies.verify_packet(Some(from.ip()), message, reply) {
            Ok(_) => self.judge_proven(address),
            Err(TunnResult::WriteToNetwork(reply)) => match self.take_share(address, from) {
                true => self.answer(),
                false => Verdict::Prove(reply),
            },
            Err(TunnResult::Err(WireGuardError::InvalidMac)) => Verdict::InvalidMac,
            Err(_) => Verdict::Malformed,
        }
    }

    /// Returns true if a handshake message that another worker has admitted may cost a key exchange
    /// in this call.
    pub fn admits_passed(&mut self) -> bool {
        self.answer() == Verdict::Answer
    }

    fn judge_proven(&mut self, address: IpAddr) -> Verdict<'static> {
        let of_address = self
            .by_address
            .get(&address)
            .map_or(0, |count| count.proven);
        if of_address >= self.per_second || self.answered >= PROVEN_LIMIT * self.per_second {
            return Verdict::TooMany;
        }
        self.by_address.entry(address).or_default().proven += 1;
        self.answer()
    }

    /// Counts a message without proof, and returns true if its sender is below its limits.
    fn take_share(&mut self, address: IpAddr, from: SocketAddr) -> bool {
        let of_address = self
            .by_address
            .get(&address)
            .map_or(0, |count| count.unproven);
        let of_port = self.by_port.get(&from).copied().unwrap_or(0);
        let most = share(self.per_second);
        if self.unproven >= self.per_second || of_address >= most || of_port >= share(most) {
            return false;
        }
        self.unproven += 1;
        self.by_address.entry(address).or_default().unproven += 1;
        *self.by_port.entry(from).or_default() += 1;
        true
    }

    fn answer(&mut self) -> Verdict<'static> {
        if self.in_call >= CALL_LIMIT {
            return Verdict::TooMany;
        }
        self.in_call += 1;
        self.answered += 1;
        Verdict::Answer
    }

    fn renew(&mut self, now: Instant) {
        if now - self.since >= PERIOD {
            self.since = now;
            self.answered = 0;
            self.unproven = 0;
            self.by_address.clear();
            self.by_port.clear();
        }
    }
}

/// The most that one sender gets of `all`. A quarter is left for others, if it is at least one.
fn share(all: u64) -> u64 {
    all - all / 4
}

/// The network that belongs to one sender alone: an IPv4 address, or an IPv6 network of 64 bits.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        ip => ip,
    }
}
