//! Peers whose Endpoint is a name: what it stands for, and when to ask again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use watm_core::{ErrorCode, Host, Instant, Lookup, Token};
use watm_netstack::PeerId;

/// Tokens of lookups have this bit, and none above it.
const NAMES: Token = 1 << 32;

/// Names that are looked up at the same time. A host has a few threads for this.
const MAX_LOOKUPS: usize = 4;

/// How soon a name is looked up again that has no answer; twice as long with each time, up to
/// the other.
const RETRY: Duration = Duration::from_secs(5);
const MAX_RETRY: Duration = Duration::from_secs(300);

/// See the module's page.
#[derive(Default)]
pub struct Names {
    entries: BTreeMap<PeerId, Entry>,
    /// No entry is due before.
    due: Option<Instant>,
    lookups: usize,
}

struct Entry {
    name: String,
    port: u16,
    lookup: Option<Box<dyn Lookup>>,
    /// When to look it up.
    due: Option<Instant>,
    /// What is left of the addresses that it had last, the next one last.
    left: Vec<SocketAddr>,
    /// When they were told.
    known: Option<Instant>,
    /// Why there was no answer the last time, and how often in a row.
    failure: Option<(ErrorCode, u32)>,
}

/// What has become of a lookup.
pub enum Answer {
    /// The peer is to be tried there.
    Found(PeerId, SocketAddr),
    /// There is no answer, for the first time in a row.
    Failed(PeerId, ErrorCode),
}

impl Names {
    /// Have this peer's Endpoint looked up, `now` if the peer is nowhere else.
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

    /// Forget all peers but those that `keep`.
    pub fn retain(&mut self, keep: impl Fn(PeerId, &str, u16) -> bool) {
        self.entries
            .retain(|id, entry| keep(*id, &entry.name, entry.port));
        let lookups = self.entries.values().filter(|entry| entry.lookup.is_some());
        self.lookups = lookups.count();
    }

    /// Whether this peer's Endpoint is a name that is known here.
    pub fn has(&self, id: PeerId) -> bool {
        self.entries.contains_key(&id)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The name of this peer's Endpoint, and its port.
    pub fn name(&self, id: PeerId) -> Option<String> {
        let entry = self.entries.get(&id)?;
        Some(format!("{}:{}", entry.name, entry.port))
    }

    /// When the name of this peer had an answer last.
    pub fn known_since(&self, id: PeerId) -> Option<Instant> {
        self.entries.get(&id)?.known
    }

    /// Why the name of this peer has no address, if that is what was said last.
    pub fn failure(&self, id: PeerId) -> Option<&ErrorCode> {
        let entry = self.entries.get(&id)?;
        entry.failure.as_ref().map(|(code, _)| code)
    }

    /// The peer does not answer where it was thought to be, or is needed: the next of its
    /// addresses, or `None` and the name is looked up again.
    pub fn next(&mut self, id: PeerId, now: Instant) -> Option<SocketAddr> {
        let entry = self.entries.get_mut(&id)?;
        let next = entry.left.pop();
        if next.is_none() && entry.lookup.is_none() {
            entry.due = Some(now);
            self.plan(Some(now));
        }
        next
    }

    /// When [`poll`](Self::poll) has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        // More is begun when a token tells of an end.
        self.due.filter(|_| self.lookups < MAX_LOOKUPS)
    }

    /// Take the answer of the lookup with this token, if it is one's.
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

    /// Begin what is due; what fails at once is told.
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
    /// There is no answer: later again.
    fn fail(&mut self, id: PeerId, code: ErrorCode, now: Instant) -> Option<Answer> {
        let before = self.failure.take().map_or(0, |(_, times)| times);
        // Doubled no further than to the longest.
        let wait = (RETRY * (1 << before.min(6))).min(MAX_RETRY);
        self.due = Some(now + wait);
        self.failure = Some((code.clone(), before.saturating_add(1)));
        (before == 0).then_some(Answer::Failed(id, code))
    }
}
