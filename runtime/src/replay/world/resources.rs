//! The resources of one instance, in the recording and in this run. Used by the world.

use std::collections::BTreeMap;

use serde::Serialize;
use watm_component::recording::Outcome;
use watm_component::wit::flows::Kind;
use watm_component::wit::types::{Destination, ErrorCode};

use super::super::answers::{done, encoded, refused};
use super::super::signing::Signing;
use super::Source;

/// The first handle of resources that the recording does not have, above any handle of a host.
const OWN_HANDLES: u32 = 1 << 30;

/// The facts that identify a resource, up to its number among those with the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Facts {
    /// The source and destination of a stream that the module opens.
    Stream,
    /// The source and destination of datagrams.
    Datagrams,
    /// The destination of a connection.
    Outgoing,
    /// The name and port of a lookup.
    Lookup,
}

/// The identity of a resource in every run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Socket(String),
    Device(String),
    Listener(String),
    Mailbox,
    /// A connection: its listener, and its number among that listener's.
    Connection(String, u64),
    /// One of several resources of a kind with the same encoded facts, and its number among these.
    Numbered(Facts, Vec<u8>, u64),
    /// A flow of the application: the number of its call of `dial` or `dial-datagrams`.
    Dialled(u64),
}

impl Key {
    /// Returns true if a module needs a grant to open the resource.
    fn needs_a_grant(&self) -> bool {
        matches!(
            self,
            Key::Socket(_)
                | Key::Device(_)
                | Key::Listener(_)
                | Key::Numbered(Facts::Outgoing | Facts::Lookup, ..)
        )
    }
}

type Counts = BTreeMap<(Facts, Vec<u8>), u64>;

/// The resources of one instance, in the recording and in this run.
#[derive(Default)]
pub(super) struct Resources {
    pub(super) sources: BTreeMap<Key, Source>,
    recorded_handles: BTreeMap<u32, Key>,
    recorded_tokens: BTreeMap<u64, Key>,
    /// The number of resources with the same facts, in the recording; `counts`: in this run.
    recorded_counts: Counts,
    counts: Counts,
    /// The application's decisions about flows, by the encoded question.
    accepts: BTreeMap<Vec<u8>, bool>,
    dialled: u64,
    pub(super) signing: Signing,
    handles: BTreeMap<u32, Key>,
    own_handles: u32,
}

impl Resources {
    /// Notes an opened resource of the recording.
    pub(super) fn opened(&mut self, key: Key, token: u64, outcome: Outcome<u32>) {
        let source = self.sources.entry(key.clone()).or_default();
        match outcome {
            Outcome::Done(handle) => {
                source.handle = Some(handle);
                self.recorded_tokens.insert(token, key.clone());
                self.recorded_handles.insert(handle, key);
            }
            // A socket that is opened a second time is refused too, which is ignored.
            Outcome::Refused(code) if source.handle.is_none() => source.refused = Some(code),
            Outcome::Refused(_) | Outcome::Trapped(_) => {}
        }
    }

    /// Notes the next resource of the recording with these facts.
    pub(super) fn opened_next<T: Serialize>(
        &mut self,
        facts: Facts,
        are: &T,
        token: u64,
        outcome: Outcome<u32>,
    ) {
        let key = next(&mut self.recorded_counts, facts, are);
        self.opened(key, token, outcome);
    }

    /// Notes a connection that a listener of the recording accepted. Returns `None` if the
    /// recording does not have the listener.
    pub(super) fn accepted(&mut self, listener: u32, token: u64, handle: u32) -> Option<()> {
        let Key::Listener(label) = self.recorded_handles.get(&listener)? else {
            return None;
        };
        let label = label.clone();
        let source = self.recorded(listener)?;
        source.connections += 1;
        let key = Key::Connection(label, source.connections);
        self.opened(key, token, Outcome::Done(handle));
        Some(())
    }

    /// Notes the application's decision about a flow of this kind to this destination.
    pub(super) fn decided(&mut self, flow: &(Kind, Destination), accepted: bool) {
        self.accepts.insert(encoded(flow), accepted);
    }

    /// Returns the application's decision. By default it accepts all flows.
    pub(super) fn accepts(&self, flow: &(Kind, Destination)) -> bool {
        *self.accepts.get(&encoded(flow)).unwrap_or(&true)
    }

    /// Opens the next resource of this run with these facts.
    pub(super) fn open_next<T: Serialize>(&mut self, facts: Facts, are: &T, token: u64) -> Vec<u8> {
        let key = next(&mut self.counts, facts, are);
        self.open(key, token)
    }

    /// Notes a flow of the application in the recording, with its handle and token there. Returns
    /// its handle in this run.
    pub(super) fn dial(&mut self, recorded: u32, token: Option<u64>) -> u32 {
        self.dialled += 1;
        let key = Key::Dialled(self.dialled);
        let source = self.sources.entry(key.clone()).or_default();
        source.handle = Some(recorded);
        if let Some(token) = token {
            self.recorded_tokens.insert(token, key.clone());
        }
        self.recorded_handles.insert(recorded, key.clone());
        self.hold(key)
    }

    /// Notes the token of the latest flow of the application in this run.
    pub(super) fn dialled(&mut self, token: u64) {
        let key = Key::Dialled(self.dialled);
        if let Some(source) = self.sources.get_mut(&key) {
            source.token = Some(token);
        }
    }

    /// Returns the token in this run of a resource, by its token in the recording.
    pub(super) fn token(&self, recorded: u64) -> Option<u64> {
        self.sources
            .get(self.recorded_tokens.get(&recorded)?)?
            .token
    }

    /// Returns a resource by its handle in the recording.
    pub(super) fn recorded(&mut self, handle: u32) -> Option<&mut Source> {
        self.sources.get_mut(self.recorded_handles.get(&handle)?)
    }

    /// Opens a resource in this run.
    pub(super) fn open(&mut self, key: Key, token: u64) -> Vec<u8> {
        if key.needs_a_grant() && !self.sources.contains_key(&key) {
            // The recorded module did not open it, so it is not known to be granted.
            return refused(ErrorCode::AccessDenied);
        }
        let source = self.sources.entry(key.clone()).or_default();
        if source.token.is_some() {
            return refused(ErrorCode::InvalidState);
        }
        if let Some(code) = &source.refused {
            return refused(code.clone());
        }
        source.token = Some(token);
        done(&self.hold(key))
    }

    pub(super) fn accept(&mut self, listener: u32, token: u64) -> Option<Vec<u8>> {
        let Some(Key::Listener(label)) = self.handles.get(&listener).cloned() else {
            return None;
        };
        let source = self.source(listener)?;
        if source.accepted == source.connections {
            return Some(done(&None::<u32>));
        }
        source.accepted += 1;
        let key = Key::Connection(label, source.accepted);
        self.sources.entry(key.clone()).or_default().token = Some(token);
        Some(done(&Some(self.hold(key))))
    }

    /// Returns a handle for a resource: that of the recording, if it is free.
    fn hold(&mut self, key: Key) -> u32 {
        let recorded = self.sources.get(&key).and_then(|source| source.handle);
        let handle = match recorded {
            Some(handle) if !self.handles.contains_key(&handle) => handle,
            _ => {
                self.own_handles += 1;
                OWN_HANDLES + self.own_handles
            }
        };
        self.handles.insert(handle, key);
        handle
    }

    /// Returns a resource by its handle in this run.
    pub(super) fn source(&mut self, handle: u32) -> Option<&mut Source> {
        self.sources.get_mut(self.handles.get(&handle)?)
    }

    pub(super) fn close(&mut self, handle: u32) {
        let Some(key) = self.handles.remove(&handle) else {
            return;
        };
        match key {
            // These can be opened again.
            Key::Socket(_) | Key::Device(_) | Key::Listener(_) | Key::Mailbox => {
                if let Some(source) = self.sources.get_mut(&key) {
                    source.token = None;
                }
            }
            // Nobody reads the rest.
            Key::Connection(..) | Key::Numbered(..) | Key::Dialled(_) => {
                if let Some(source) = self.sources.get_mut(&key) {
                    source.token = None;
                    source.datagrams.clear();
                    source.bytes.clear();
                }
            }
        }
    }
}

/// Counts a resource with these facts, and returns its key.
fn next<T: Serialize>(counts: &mut Counts, facts: Facts, are: &T) -> Key {
    let are = encoded(are);
    let count = counts.entry((facts, are.clone())).or_default();
    *count += 1;
    Key::Numbered(facts, are, *count)
}
