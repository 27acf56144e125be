//! Peers whose Endpoint is a name: its addresses, and when to look it up again. Used by
//! `transport`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use watm_core::{ErrorCode, Host, Instant, Lookup, Token};
use watm_netstack::PeerId;

/// Tokens of lookups have this bit, and none above it.
const NAMES: Token = 1 << 32;

/// Lookups at the same time. A host has a few threads for them.
const MAX_LOOKUPS: usize = 4;

/// The delay before a name without an answer is looked up again. It doubles each time, up to
/// `MAX_RETRY`.
const RETRY: Duration = Duration::from_secs(5);
const MAX_RETRY: Duration = Duration::from_secs(300);

/// The names of the peers. See the module's documentation.
#[derive(Default)]
pub struct Names {
    entries: BTreeMap<PeerId, Entry>,
    /// The earliest time at which an entry is due.
    due: Option<Instant>,
    lookups: usize,
}

struct Entry {
    name: String,
    port: u16,
    lookup: Option<Box<dyn Lookup>>,
    /// The time of the next lookup.
    due: Option<Instant>,
    /// The untried addresses of the last answer, the next one last.
    left: Vec<SocketAddr>,
    /// The time of the last answer.
    known: Option<Instant>,
    /// The error of the last lookup, and the number of failures in a row.
    failure: Option<(ErrorCode, u32)>,
}

/// The outcome of a lookup.
pub enum Answer {
    /// An address to try for the peer.
    Found(PeerId, SocketAddr),
    /// The first failure in a row.
    Failed(PeerId, ErrorCode),
}

impl Names {
    /// Add this peer's Endpoint, and look it up at `now` if the peer has no other address.
    pub fn insert(&mut self, id: PeerId, name: &str, port: u16, now: Option<Instant>) {
        let entry = Entry {
            name: name.to_owned(),
            port,
            lookup: None,
            due: now,
            left: Vec::new(),
            known: None,
            failure: None,
        };
        self.entries.insert(id, entry);
        self.plan(now);
    }

    /// Forget all peers except those that `keep` accepts.
    pub fn retain(&mut self, keep: impl Fn(PeerId, &str, u16) -> bool) {
        self.entries
            .retain(|id, entry| keep(*id, &entry.name, entry.port));
        let lookups = self.entries.values().filter(|entry| entry.lookup.is_some());
        self.lookups = lookups.count();
    }

    /// Returns true if this peer's Endpoint is a known name.
    pub fn has(&self, id: PeerId) -> bool {
        self.entries.contains_key(&id)
    }

    /// Returns true if there are no names.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The name of this peer's Endpoint, and its port.
    pub fn name(&self, id: PeerId) -> Option<String> {
        let entry = self.entries.get(&id)?;
        Some(format!("{}:{}", entry.name, entry.port))
    }

    /// The time of the last answer for this peer's name.
    pub fn known_since(&self, id: PeerId) -> Option<Instant> {
        self.entries.get(&id)?.known
    }

    /// The error of the last lookup of this peer's name, if it failed.
    pub fn failure(&self, id: PeerId) -> Option<&ErrorCode> {
        let entry = self.entries.get(&id)?;
        entry.failure.as_ref().map(|(code, _)| code)
    }

    /// Returns the next address of a peer that does not answer, or that is needed. `None`: the name
    /// is looked up again.
    pub fn next(&mut self, id: PeerId, now: Instant) -> Option<SocketAddr> {
        let entry = self.entries.get_mut(&id)?;
        let next = entry.left.pop();
        if next.is_none() && entry.lookup.is_none() {
            entry.due = Some(now);
            self.plan(Some(now));
        }
        next
    }

    /// The time at which [`poll`](Self::poll) has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        // A token announces the end of a lookup, after which more begin.
        self.due.filter(|_| self.lookups < MAX_LOOKUPS)
    }

    /// Take the answer of the lookup with this token, if it is the token of one.
    pub fn ready(&mut self, token: Token, now: Instant) -> Option<Answer> {
        let id = PeerId::try_from(token.checked_sub(NAMES)?).ok()?;
        let entry = self.entries.get_mut(&id)?;
        let answer = entry.lookup.as_mut()?.addresses();
        let answer = match answer {
            Ok(None) => return None,
            Ok(Some(mut found)) => {
                found.reverse();
                let first = found.pop().ok_or(ErrorCode::NameUnresolvable);
                entry.left = found;
                first
            }
            Err(code) => Err(code),
        };
        entry.lookup = None;
        self.lookups -= 1;
        let answer = match answer {
            Ok(address) => {
                entry.failure = None;
                entry.known = Some(now);
                Some(Answer::Found(id, address))
            }
            Err(code) => entry.fail(id, code, now),
        };
        let due = entry.due;
        self.plan(due);
        answer
    }

    /// Begin the lookups that are due. Returns those that fail at once.
    pub fn poll(&mut self, host: &mut dyn Host) -> Vec<Answer> {
        let now = host.now();
        let mut answers = Vec::new();
        if self.deadline().is_none_or(|due| due > now) {
            return answers;
        }
        self.due = None;
        for (&id, entry) in &mut self.entries {
            let is_due = entry.due.is_some_and(|due| due <= now);
            if is_due && self.lookups < MAX_LOOKUPS && entry.lookup.is_none() {
                entry.due = None;
                match host.lookup(&entry.name, entry.port, NAMES + Token::from(id)) {
                    Ok(lookup) => {
                        entry.lookup = Some(lookup);
                        self.lookups += 1;
                    }
                    Err(code) => answers.extend(entry.fail(id, code, now)),
                }
            }
            if let Some(due) = entry.due {
                self.due = Some(self.due.map_or(due, |known| known.min(due)));
            }
        }
        answers
    }

    fn plan(&mut self, due: Option<Instant>) {
        if let Some(due) = due {
            self.due = Some(self.due.map_or(due, |known| known.min(due)));
        }
    }
}

impl Entry {
    /// Record a failure, and plan the next lookup.
    fn fail(&mut self, id: PeerId, code: ErrorCode, now: Instant) -> Option<Answer> {
        let before = self.failure.take().map_or(0, |(_, times)| times);
        // The doubling stops at the longest delay.
        let wait = (RETRY * (1 << before.min(6))).min(MAX_RETRY);
        self.due = Some(now + wait);
        self.failure = Some((code.clone(), before.saturating_add(1)));
        (before == 0).then_some(Answer::Failed(id, code))
    }
}
