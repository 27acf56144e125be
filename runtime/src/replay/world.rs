//! The world of a fitting replay: recorded data by resource, for a module that asks in another
//! order. `fitting` feeds and asks it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ring::digest;

use super::answers::{done, encoded, refused};
use super::signing::Signing;
use watm_component::recording::{Asked, Function, Outcome, Recorded};
use watm_component::wit::flows::{Datagrams, FlowInfo};
use watm_component::wit::generations::{Mail, Messages};
use watm_component::wit::sockets::{DatagramBatch, DatagramInfo};
use watm_component::wit::types::{ErrorCode, IpAddress, IpSocketAddress};

/// The first handle of resources that the recording does not have, above any handle of a host.
const OWN_HANDLES: u32 = 1 << 30;

/// The identity of a resource in every run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Socket(String),
    Listener(String),
    Mailbox,
    /// A connection: its listener, and its number among that listener's.
    Connection(String, u64),
    /// A flow: true for a stream, the encoded source and destination, and its number among these.
    Flow(bool, Vec<u8>, u64),
    /// An outgoing connection: the encoded destination, and its number among these.
    Outgoing(Vec<u8>, u64),
    /// A lookup: the encoded name and port, and its number among these.
    Lookup(Vec<u8>, u64),
    /// A flow of the application: the number of its call of `dial` or `dial-datagrams`.
    Dialled(u64),
}

/// The recorded data of one resource.
#[derive(Default)]
struct Source {
    /// Its handle in the recording.
    handle: Option<u32>,
    /// Its token in this run.
    token: Option<u64>,
    /// The host's answer when it was opened, if it refused.
    refused: Option<ErrorCode>,
    /// The datagrams: with their entries on a socket, without in a datagram flow.
    datagrams: VecDeque<(Option<DatagramInfo>, Vec<u8>)>,
    bytes: VecDeque<u8>,
    connections: u64,
    accepted: u64,
    ended: bool,
    read_error: Option<ErrorCode>,
    write_error: Option<ErrorCode>,
    /// The answer of a lookup, and true if it was taken.
    found: Option<(Vec<IpSocketAddress>, bool)>,
    /// The longest datagram by the encoded address, as last reported.
    longest: BTreeMap<Vec<u8>, Option<u32>>,
    /// Hosts that reported datagrams as unreachable, and that the module has not asked for yet.
    unreachable: Vec<IpAddress>,
    local: Option<IpSocketAddress>,
    remote: Option<IpSocketAddress>,
}

/// The resources of one instance, in the recording and in this run.
#[derive(Default)]
struct Resources {
    sources: BTreeMap<Key, Source>,
    recorded_handles: BTreeMap<u32, Key>,
    recorded_tokens: BTreeMap<u64, Key>,
    /// The number of times that a flow was opened, in the recording; `flows`: in this run.
    recorded_flows: BTreeMap<(bool, Vec<u8>), u64>,
    flows: BTreeMap<(bool, Vec<u8>), u64>,
    /// The same for destinations that the module connected to.
    recorded_outgoing: BTreeMap<Vec<u8>, u64>,
    outgoing: BTreeMap<Vec<u8>, u64>,
    /// The same for names that it looked up.
    recorded_lookups: BTreeMap<Vec<u8>, u64>,
    lookups: BTreeMap<Vec<u8>, u64>,
    /// The application's decisions about flows, by the encoded question.
    accepts: BTreeMap<Vec<u8>, bool>,
    dialled: u64,
    signing: Signing,
    handles: BTreeMap<u32, Key>,
    own_handles: u32,
}

pub(super) struct World {
    resources: Resources,
    random: VecDeque<u8>,
    /// The number of blocks of random bytes that were made here.
    made: u64,
    times: VecDeque<Duration>,
    time: Duration,
}

impl World {
    pub(super) fn new(began: Duration) -> World {
        World {
            resources: Resources::default(),
            random: VecDeque::new(),
            made: 0,
            times: VecDeque::new(),
            time: began,
        }
    }

    /// Starts anew for another instance.
    pub(super) fn renew(&mut self) {
        *self = World::new(self.time);
    }

    /// Learns the host's part in an import of the recording, from its arguments and outcome.
    pub(super) fn learn(&mut self, function: Function, rest: &[u8]) {
        // An import that cannot be decoded adds nothing.
        let _ = self.try_learn(function, rest);
    }

    /// Begins a call of `dial`, which has the application's stream or flow under `recorded`, and
    /// got `token` for it. Returns the stream's handle in this run.
    pub(super) fn dial(&mut self, recorded: u32, token: Option<u64>) -> u32 {
        let resources = &mut self.resources;
        resources.dialled += 1;
        let key = Key::Dialled(resources.dialled);
        let source = resources.sources.entry(key.clone()).or_default();
        source.handle = Some(recorded);
        if let Some(token) = token {
            resources.recorded_tokens.insert(token, key.clone());
        }
        resources.recorded_handles.insert(recorded, key.clone());
        resources.hold(key)
    }

    /// Notes that the latest call of `dial` was answered with this token.
    pub(super) fn dialled(&mut self, token: u64) {
        let key = Key::Dialled(self.resources.dialled);
        if let Some(source) = self.resources.sources.get_mut(&key) {
            source.token = Some(token);
        }
    }

    /// Maps tokens of the recording to those of this run.
    pub(super) fn tokens(&self, recorded: &[u64]) -> Vec<u64> {
        let resources = &self.resources;
        let mut tokens = Vec::new();
        for token in recorded {
            let key = resources.recorded_tokens.get(token);
            let source = key.and_then(|key| resources.sources.get(key));
            tokens.extend(source.and_then(|source| source.token));
        }
        tokens
    }

    /// Returns the amount of data that the module has not taken.
    pub(super) fn waiting(&self) -> u64 {
        self.resources.sources.values().map(Source::waiting).sum()
    }

    /// Returns the tokens of the resources that have such data.
    pub(super) fn waiting_tokens(&self) -> Vec<u64> {
        let sources = self.resources.sources.values();
        sources
            .filter(|source| source.waiting() > 0)
            .filter_map(|source| source.token)
            .collect()
    }

    /// Returns the outcome of an import; `None` if the replay has none.
    pub(super) fn answer(&mut self, function: Function, arguments: &[u8]) -> Option<Vec<u8>> {
        match function.asked(arguments)? {
            Asked::DatagramSocketOpen { label, token } => {
                self.resources.open(Key::Socket(label), token)
            }
            Asked::ListenerOpen { label, token } => {
                self.resources.open(Key::Listener(label), token)
            }
            Asked::OpenStream { info, token } => self.resources.open_flow(true, &info, token),
            Asked::OpenDatagrams { info, token } => self.resources.open_flow(false, &info, token),
            Asked::Connect { destination, token } => {
                let base = encoded(&destination);
                let count = self.resources.outgoing.entry(base.clone()).or_default();
                *count += 1;
                let key = Key::Outgoing(base, *count);
                self.resources.open(key, token)
            }
            Asked::LookupStart { name, port, token } => {
                let base = encoded(&(name, port));
                let count = self.resources.lookups.entry(base.clone()).or_default();
                *count += 1;
                let key = Key::Lookup(base, *count);
                self.resources.open(key, token)
            }
            Asked::LookupAddresses { lookup } => Some(self.resources.source(lookup)?.addresses()),
            Asked::PrivateKeyOpen { name } => Some(self.resources.signing.open(name)),
            Asked::PrivateKeyPublicKey { key } => {
                Some(done(&self.resources.signing.key(key)?.public_key))
            }
            Asked::PrivateKeySchemes { key } => {
                Some(done(&self.resources.signing.key(key)?.schemes))
            }
            Asked::PrivateKeySign {
                key,
                scheme,
                message,
            } => Some(self.resources.signing.key(key)?.sign(scheme, message)),
            Asked::PrivateKeyDrop { key } => {
                self.resources.signing.close(key);
                Some(done(&()))
            }
            Asked::ListenerAccept { listener, token } => self.resources.accept(listener, token),
            Asked::DatagramSocketReceive {
                socket,
                max,
                max_bytes,
            } => Some(self.resources.source(socket)?.receive(max, max_bytes)),
            Asked::DatagramFlowReceive {
                flow,
                max,
                max_bytes,
            } => Some(self.resources.source(flow)?.receive_of_flow(max, max_bytes)),
            Asked::ByteStreamRead { stream, max } => Some(self.resources.source(stream)?.read(max)),
            Asked::DatagramSocketSend {
                payload, datagrams, ..
            } => {
                let total: u64 = datagrams.iter().map(|info| u64::from(info.len)).sum();
                if total != u64::from(payload.len) {
                    return Some(refused(ErrorCode::InvalidArgument));
                }
                Some(done(&(datagrams.len() as u32)))
            }
            Asked::DatagramFlowSend {
                flow,
                payload,
                lengths,
            } => {
                let total: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
                if total != u64::from(payload.len) {
                    return Some(refused(ErrorCode::InvalidArgument));
                }
                Some(self.resources.source(flow)?.written(lengths.len() as u32))
            }
            Asked::ByteStreamWrite { stream, data } => {
                Some(self.resources.source(stream)?.written(data.len))
            }
            Asked::DatagramSocketLongest { socket, remote } => {
                let known = &self.resources.source(socket)?.longest;
                Some(done(known.get(&encoded(&remote)).unwrap_or(&None)))
            }
            Asked::DatagramSocketTakeUnreachable { socket } => {
                let source = self.resources.source(socket)?;
                Some(done(&std::mem::take(&mut source.unreachable)))
            }
            Asked::DatagramSocketLocalAddress { socket: handle }
            | Asked::ListenerLocalAddress { listener: handle } => {
                Some(done(&self.resources.source(handle)?.local?))
            }
            Asked::ByteStreamRemoteAddress { stream } => {
                Some(done(&self.resources.source(stream)?.remote))
            }
            // A recording ends when another generation begins, so the mailbox stays empty.
            Asked::MailboxOpen { token } => self.resources.open(Key::Mailbox, token),
            Asked::MailboxReceive { .. } => Some(done(&Mail {
                messages: Messages {
                    payload: Vec::new(),
                    messages: Vec::new(),
                },
                ended: Vec::new(),
            })),
            Asked::MailboxSend { messages, .. } => Some(done(&(messages.len() as u32))),
            Asked::DatagramSocketDrop { socket: handle }
            | Asked::MailboxDrop { mailbox: handle }
            | Asked::LookupDrop { lookup: handle }
            | Asked::ListenerDrop { listener: handle }
            | Asked::ByteStreamDrop { stream: handle }
            | Asked::DatagramFlowDrop { flow: handle } => {
                self.resources.close(handle);
                Some(done(&()))
            }
            Asked::RandomBytes { len } => {
                let bytes: Vec<u8> = (0..len).map(|_| self.random_byte()).collect();
                Some(done(&bytes))
            }
            Asked::RandomU64 {} => {
                let bytes: [u8; 8] = std::array::from_fn(|_| self.random_byte());
                Some(done(&u64::from_le_bytes(bytes)))
            }
            Asked::WallClock {} => {
                self.time = self.times.pop_front().unwrap_or(self.time);
                Some(done(&self.time))
            }
            Asked::Accepts { kind, destination } => {
                let known = self.resources.accepts.get(&encoded(&(kind, destination)));
                // An application accepts all flows by default.
                Some(done(known.unwrap_or(&true)))
            }
            Asked::ByteStreamShutdown { .. }
            | Asked::ByteStreamReset { .. }
            | Asked::ByteStreamConnecting { .. }
            | Asked::ByteStreamConnected { .. }
            | Asked::DatagramSocketSetDontFragment { .. }
            | Asked::DatagramFlowSetLongest { .. }
            | Asked::Coalesce { .. }
            | Asked::AeadKeyCreate { .. }
            | Asked::Log { .. } => Some(done(&())),
        }
    }

    /// Returns the next recorded byte; after those, the next one of a hash in counter mode.
    fn random_byte(&mut self) -> u8 {
        if self.random.is_empty() {
            let block = digest::digest(&digest::SHA256, &self.made.to_le_bytes());
            self.made += 1;
            self.random.extend(block.as_ref());
        }
        self.random.pop_front().unwrap_or_default()
    }

    fn try_learn(&mut self, function: Function, rest: &[u8]) -> Option<()> {
        let resources = &mut self.resources;
        match function.recorded(rest)? {
            Recorded::MailboxOpen { token, outcome } => {
                resources.opened(Key::Mailbox, token, outcome);
            }
            Recorded::DatagramSocketOpen {
                label,
                token,
                outcome,
            } => resources.opened(Key::Socket(label), token, outcome),
            Recorded::ListenerOpen {
                label,
                token,
                outcome,
            } => resources.opened(Key::Listener(label), token, outcome),
            Recorded::OpenStream {
                info,
                token,
                outcome,
            } => resources.opened_flow(true, &info, token, outcome),
            Recorded::OpenDatagrams {
                info,
                token,
                outcome,
            } => resources.opened_flow(false, &info, token, outcome),
            Recorded::Connect {
                destination,
                token,
                outcome,
            } => {
                let base = encoded(&destination);
                let count = resources.recorded_outgoing.entry(base.clone()).or_default();
                *count += 1;
                let key = Key::Outgoing(base, *count);
                resources.opened(key, token, outcome);
            }
            Recorded::LookupStart {
                name,
                port,
                token,
                outcome,
            } => {
                let base = encoded(&(name, port));
                let count = resources.recorded_lookups.entry(base.clone()).or_default();
                *count += 1;
                let key = Key::Lookup(base, *count);
                resources.opened(key, token, outcome);
            }
            Recorded::LookupAddresses { lookup, outcome } => {
                let source = resources.recorded(lookup)?;
                match outcome {
                    Outcome::Done(Some(found)) => source.found = Some((found, false)),
                    Outcome::Refused(code) => source.read_error = Some(code),
                    Outcome::Done(None) | Outcome::Trapped(_) => {}
                }
            }
            Recorded::PrivateKeyOpen {
                name,
                outcome: Outcome::Done(handle),
            } => resources.signing.opened(name, handle),
            Recorded::PrivateKeyPublicKey {
                key,
                outcome: Outcome::Done(public_key),
            } => resources.signing.recorded(key)?.public_key = public_key,
            Recorded::PrivateKeySchemes {
                key,
                outcome: Outcome::Done(schemes),
            } => resources.signing.recorded(key)?.schemes = schemes,
            Recorded::PrivateKeySign {
                key,
                scheme,
                message,
                outcome: Outcome::Done(signature),
            } => resources
                .signing
                .recorded(key)?
                .signed(scheme, message, signature),
            Recorded::ListenerAccept {
                listener,
                token,
                outcome: Outcome::Done(Some(handle)),
            } => {
                let Some(Key::Listener(label)) = resources.recorded_handles.get(&listener) else {
                    return None;
                };
                let label = label.clone();
                let source = resources.recorded(listener)?;
                source.connections += 1;
                let key = Key::Connection(label, source.connections);
                resources.opened(key, token, Outcome::Done(handle));
            }
            Recorded::DatagramSocketReceive {
                socket, outcome, ..
            } => {
                let source = resources.recorded(socket)?;
                match outcome {
                    Outcome::Done(batch) => {
                        let mut payload = batch.payload.as_slice();
                        for info in batch.datagrams {
                            let (datagram, tail) = payload.split_at_checked(info.len as usize)?;
                            source.datagrams.push_back((Some(info), datagram.to_vec()));
                            payload = tail;
                        }
                    }
                    Outcome::Refused(code) => source.read_error = Some(code),
                    Outcome::Trapped(_) => {}
                }
            }
            Recorded::DatagramFlowReceive { flow, outcome, .. } => {
                let source = resources.recorded(flow)?;
                match outcome {
                    Outcome::Done(Some(datagrams)) => {
                        let mut payload = datagrams.payload.as_slice();
                        for length in datagrams.lengths {
                            let (datagram, tail) = payload.split_at_checked(length as usize)?;
                            source.datagrams.push_back((None, datagram.to_vec()));
                            payload = tail;
                        }
                    }
                    Outcome::Done(None) => source.ended = true,
                    Outcome::Refused(code) => source.read_error = Some(code),
                    Outcome::Trapped(_) => {}
                }
            }
            Recorded::ByteStreamRead {
                stream, outcome, ..
            } => {
                let source = resources.recorded(stream)?;
                match outcome {
                    Outcome::Done(Some(bytes)) => source.bytes.extend(bytes),
                    Outcome::Done(None) => source.ended = true,
                    Outcome::Refused(code) => source.read_error = Some(code),
                    Outcome::Trapped(_) => {}
                }
            }
            Recorded::ByteStreamWrite {
                stream: handle,
                outcome: Outcome::Refused(code),
                ..
            }
            | Recorded::DatagramFlowSend {
                flow: handle,
                outcome: Outcome::Refused(code),
                ..
            } => resources.recorded(handle)?.write_error = Some(code),
            Recorded::DatagramSocketLongest {
                socket,
                remote,
                outcome: Outcome::Done(longest),
            } => {
                let source = resources.recorded(socket)?;
                source.longest.insert(encoded(&remote), longest);
            }
            Recorded::DatagramSocketTakeUnreachable {
                socket,
                outcome: Outcome::Done(hosts),
            } => resources.recorded(socket)?.unreachable.extend(hosts),
            Recorded::DatagramSocketLocalAddress {
                socket: handle,
                outcome: Outcome::Done(address),
            }
            | Recorded::ListenerLocalAddress {
                listener: handle,
                outcome: Outcome::Done(address),
            } => resources.recorded(handle)?.local = Some(address),
            Recorded::ByteStreamRemoteAddress {
                stream,
                outcome: Outcome::Done(address),
            } => resources.recorded(stream)?.remote = address,
            Recorded::RandomBytes {
                outcome: Outcome::Done(bytes),
                ..
            } => self.random.extend(bytes),
            Recorded::RandomU64 {
                outcome: Outcome::Done(number),
            } => self.random.extend(number.to_le_bytes()),
            Recorded::WallClock {
                outcome: Outcome::Done(time),
            } => self.times.push_back(time),
            Recorded::Accepts {
                kind,
                destination,
                outcome: Outcome::Done(accepted),
            } => {
                let asked = encoded(&(kind, destination));
                resources.accepts.insert(asked, accepted);
            }
            // The outcome says nothing that a replay needs.
            Recorded::PrivateKeyOpen { .. }
            | Recorded::PrivateKeyPublicKey { .. }
            | Recorded::PrivateKeySchemes { .. }
            | Recorded::PrivateKeySign { .. }
            | Recorded::ListenerAccept { .. }
            | Recorded::ByteStreamWrite { .. }
            | Recorded::DatagramFlowSend { .. }
            | Recorded::DatagramSocketLongest { .. }
            | Recorded::DatagramSocketTakeUnreachable { .. }
            | Recorded::DatagramSocketLocalAddress { .. }
            | Recorded::ListenerLocalAddress { .. }
            | Recorded::ByteStreamRemoteAddress { .. }
            | Recorded::RandomBytes { .. }
            | Recorded::RandomU64 { .. }
            | Recorded::WallClock { .. }
            | Recorded::Accepts { .. } => {}
            // The host returns no data for these.
            Recorded::DatagramSocketSend { .. }
            | Recorded::ByteStreamConnecting { .. }
            | Recorded::ByteStreamConnected { .. }
            | Recorded::DatagramSocketSetDontFragment { .. }
            | Recorded::DatagramFlowSetLongest { .. }
            | Recorded::Coalesce { .. }
            | Recorded::MailboxReceive { .. }
            | Recorded::MailboxSend { .. }
            | Recorded::MailboxDrop { .. }
            | Recorded::LookupDrop { .. }
            | Recorded::PrivateKeyDrop { .. }
            | Recorded::DatagramSocketDrop { .. }
            | Recorded::ByteStreamShutdown { .. }
            | Recorded::ByteStreamReset { .. }
            | Recorded::ByteStreamDrop { .. }
            | Recorded::ListenerDrop { .. }
            | Recorded::DatagramFlowDrop { .. }
            | Recorded::AeadKeyCreate { .. }
            | Recorded::Log { .. } => {}
        }
        Some(())
    }
}

impl Resources {
    /// Notes an opened resource of the recording.
    fn opened(&mut self, key: Key, token: u64, outcome: Outcome<u32>) {
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

    /// Notes a flow of the recording: a stream or datagrams.
    fn opened_flow(&mut self, stream: bool, info: &FlowInfo, token: u64, outcome: Outcome<u32>) {
        let base = (stream, ends(info));
        let count = self.recorded_flows.entry(base.clone()).or_default();
        *count += 1;
        let key = Key::Flow(base.0, base.1, *count);
        self.opened(key, token, outcome);
    }

    /// Opens a flow in this run: a stream or datagrams.
    fn open_flow(&mut self, stream: bool, info: &FlowInfo, token: u64) -> Option<Vec<u8>> {
        let base = (stream, ends(info));
        let count = self.flows.entry(base.clone()).or_default();
        *count += 1;
        let key = Key::Flow(base.0, base.1, *count);
        self.open(key, token)
    }

    /// Returns a resource by its handle in the recording.
    fn recorded(&mut self, handle: u32) -> Option<&mut Source> {
        self.sources.get_mut(self.recorded_handles.get(&handle)?)
    }

    /// Opens a resource in this run.
    fn open(&mut self, key: Key, token: u64) -> Option<Vec<u8>> {
        let known = self.sources.contains_key(&key);
        if !known
            && matches!(
                key,
                Key::Socket(_) | Key::Listener(_) | Key::Outgoing(..) | Key::Lookup(..)
            )
        {
            // The recorded module did not open it, so it is not known to be granted.
            return Some(refused(ErrorCode::AccessDenied));
        }
        let source = self.sources.entry(key.clone()).or_default();
        if source.token.is_some() {
            return Some(refused(ErrorCode::InvalidState));
        }
        if let Some(code) = &source.refused {
            return Some(refused(code.clone()));
        }
        source.token = Some(token);
        Some(done(&self.hold(key)))
    }

    fn accept(&mut self, listener: u32, token: u64) -> Option<Vec<u8>> {
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
    fn source(&mut self, handle: u32) -> Option<&mut Source> {
        self.sources.get_mut(self.handles.get(&handle)?)
    }

    fn close(&mut self, handle: u32) {
        let Some(key) = self.handles.remove(&handle) else {
            return;
        };
        match key {
            // These can be opened again.
            Key::Socket(_) | Key::Listener(_) | Key::Mailbox => {
                if let Some(source) = self.sources.get_mut(&key) {
                    source.token = None;
                }
            }
            // Nobody reads the rest.
            Key::Connection(..)
            | Key::Flow(..)
            | Key::Outgoing(..)
            | Key::Lookup(..)
            | Key::Dialled(_) => {
                if let Some(source) = self.sources.get_mut(&key) {
                    source.token = None;
                    source.datagrams.clear();
                    source.bytes.clear();
                }
            }
        }
    }
}

impl Source {
    fn waiting(&self) -> u64 {
        if self.token.is_none() {
            return 0;
        }
        let answers = matches!(self.found, Some((_, false)));
        let pieces = self.datagrams.len() + self.bytes.len() + usize::from(answers);
        pieces as u64 + (self.connections - self.accepted)
    }

    fn take_datagram(&mut self, room: usize) -> Option<(Option<DatagramInfo>, Vec<u8>)> {
        if self.datagrams.front()?.1.len() > room {
            return None;
        }
        self.datagrams.pop_front()
    }

    fn receive(&mut self, max: u32, max_bytes: u32) -> Vec<u8> {
        if let (true, Some(code)) = (self.datagrams.is_empty(), self.read_error.take()) {
            return refused(code);
        }
        let mut batch = DatagramBatch {
            payload: Vec::new(),
            datagrams: Vec::new(),
        };
        while batch.datagrams.len() < max as usize
            && let Some((info, datagram)) =
                self.take_datagram(max_bytes as usize - batch.payload.len())
        {
            batch.datagrams.extend(info);
            batch.payload.extend(datagram);
        }
        done(&batch)
    }

    fn receive_of_flow(&mut self, max: u32, max_bytes: u32) -> Vec<u8> {
        if self.datagrams.is_empty() {
            if let Some(code) = self.read_error.clone() {
                return refused(code);
            }
            if self.ended {
                return done(&None::<Datagrams>);
            }
        }
        let mut datagrams = Datagrams {
            payload: Vec::new(),
            lengths: Vec::new(),
        };
        while datagrams.lengths.len() < max as usize
            && let Some((_, datagram)) =
                self.take_datagram(max_bytes as usize - datagrams.payload.len())
        {
            datagrams.lengths.push(datagram.len() as u32);
            datagrams.payload.extend(datagram);
        }
        done(&Some(datagrams))
    }

    fn read(&mut self, max: u32) -> Vec<u8> {
        if self.bytes.is_empty() {
            if let Some(code) = self.read_error.clone() {
                return refused(code);
            }
            if self.ended {
                return done(&None::<Vec<u8>>);
            }
        }
        let count = self.bytes.len().min(max as usize);
        let bytes: Vec<u8> = self.bytes.drain(..count).collect();
        done(&Some(bytes))
    }

    fn addresses(&mut self) -> Vec<u8> {
        if let Some(code) = &self.read_error {
            return refused(code.clone());
        }
        let found = self.found.as_mut().map(|(found, taken)| {
            *taken = true;
            &*found
        });
        done(&found)
    }

    fn written(&self, count: u32) -> Vec<u8> {
        match &self.write_error {
            Some(code) => refused(code.clone()),
            None => done(&count),
        }
    }
}

/// Returns the encoded ends of a flow.
fn ends(info: &FlowInfo) -> Vec<u8> {
    encoded(&(&info.source, &info.destination))
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use watm_component::recording::Digest;

    use super::*;
    use watm_component::wit::sockets::Ecn;
    use watm_component::wit::types::{Destination, IpAddress};

    fn address(port: u16) -> IpSocketAddress {
        IpSocketAddress {
            address: IpAddress::Ipv4((192, 0, 2, 1)),
            port,
        }
    }

    fn learn<A: Serialize, T: Serialize>(world: &mut World, function: Function, said: (A, T)) {
        let rest = [encoded(&said.0), done(&said.1)].concat();
        world.learn(function, &rest);
    }

    fn ask<A: Serialize, T: DeserializeOwned>(
        world: &mut World,
        function: Function,
        arguments: A,
    ) -> Result<T, ErrorCode> {
        let answer = world.answer(function, &encoded(&arguments)).expect("known");
        match postcard::from_bytes(&answer).expect("of this type") {
            Outcome::Done(value) => Ok(value),
            Outcome::Refused(code) => Err(code),
            Outcome::Trapped(reason) => panic!("{reason}"),
        }
    }

    fn batch(texts: &[&str]) -> DatagramBatch {
        DatagramBatch {
            payload: texts.concat().into_bytes(),
            datagrams: texts
                .iter()
                .map(|text| DatagramInfo {
                    len: text.len() as u32,
                    segment_size: None,
                    remote_address: address(9),
                    local_address: None,
                    ecn: Ecn::NotEct,
                })
                .collect(),
        }
    }

    fn info(port: u16) -> FlowInfo {
        FlowInfo {
            source: address(port),
            destination: Destination::Address(address(80)),
            peer: None,
            underlay: None,
            attributes: Vec::new(),
        }
    }

    #[test]
    fn what_came_at_once_can_be_taken_in_parts() {
        let mut world = World::new(Duration::ZERO);
        learn(
            &mut world,
            Function::DatagramSocketOpen,
            (("listen", 7u64), 3u32),
        );
        let said = batch(&["one", "two", "three"]);
        learn(
            &mut world,
            Function::DatagramSocketReceive,
            ((3u32, 64u32, 99u32), said),
        );
        assert!(world.waiting_tokens().is_empty(), "nobody can take it yet");

        let open = ("listen", 70u64);
        let socket: u32 = ask(&mut world, Function::DatagramSocketOpen, open).expect("granted");
        assert_eq!(world.tokens(&[7, 8]), [70]);
        assert_eq!(world.waiting_tokens(), [70]);
        for expected in [&["one", "two"][..], &["three"], &[]] {
            let got: DatagramBatch = ask(
                &mut world,
                Function::DatagramSocketReceive,
                (socket, 2u32, 7u32),
            )
            .expect("open");
            assert_eq!(got.payload, expected.concat().as_bytes());
            assert_eq!(got.datagrams.len(), expected.len());
        }
        assert_eq!((world.waiting(), world.waiting_tokens().len()), (0, 0));
        let again = ask::<_, u32>(&mut world, Function::DatagramSocketOpen, open);
        assert!(matches!(again, Err(ErrorCode::InvalidState)));
        let other = ask::<_, u32>(&mut world, Function::ListenerOpen, open);
        assert!(matches!(other, Err(ErrorCode::AccessDenied)));
    }

    #[test]
    fn flows_are_known_by_their_ends_whatever_the_order() {
        let mut world = World::new(Duration::ZERO);
        for (port, handle, text) in [(1, 10u32, "first"), (2, 11, "second"), (1, 12, "third")] {
            let token = u64::from(handle);
            learn(
                &mut world,
                Function::OpenStream,
                ((info(port), token), handle),
            );
            let said = ((handle, 99u32), Some(text.as_bytes().to_vec()));
            learn(&mut world, Function::ByteStreamRead, said);
            learn(
                &mut world,
                Function::ByteStreamRead,
                ((handle, 99u32), None::<Vec<u8>>),
            );
        }
        for (port, token, text) in [(2, 1u64, "second"), (1, 2, "first"), (1, 3, "third")] {
            let stream: u32 =
                ask(&mut world, Function::OpenStream, (info(port), token)).expect("opened");
            let mut got = Vec::new();
            while let Some(part) =
                ask::<_, Option<Vec<u8>>>(&mut world, Function::ByteStreamRead, (stream, 4u32))
                    .expect("open")
            {
                got.extend(part);
            }
            assert_eq!(got, text.as_bytes());
            let digest = Digest::of(b"answer");
            let written = ask(&mut world, Function::ByteStreamWrite, (stream, digest));
            assert_eq!(written.ok(), Some(6u32));
        }
        // A flow that was not opened in the recording has no data.
        let stream: u32 = ask(&mut world, Function::OpenStream, (info(5), 4u64)).expect("opened");
        let read = ask(&mut world, Function::ByteStreamRead, (stream, 4u32));
        assert_eq!(read.ok(), Some(Some(Vec::<u8>::new())));
    }

    #[test]
    fn randomness_and_time_go_on_where_the_recording_ends() {
        let mut world = World::new(Duration::from_secs(5));
        learn(
            &mut world,
            Function::RandomBytes,
            ((4u64,), vec![1u8, 2, 3, 4]),
        );
        learn(
            &mut world,
            Function::WallClock,
            ((), Duration::from_secs(9)),
        );
        let random = |world: &mut World, count: u64| -> Vec<u8> {
            ask(world, Function::RandomBytes, (count,)).expect("given")
        };
        assert_eq!(random(&mut world, 3), [1, 2, 3]);
        let rest = random(&mut world, 100);
        assert_eq!((rest.len(), rest[0]), (100, 4));
        assert_ne!(rest[1..33], rest[33..65]);
        for _ in 0..2 {
            let time: Duration = ask(&mut world, Function::WallClock, ()).expect("given");
            assert_eq!(time, Duration::from_secs(9));
        }
    }

    #[test]
    fn only_recorded_signatures_are_given_again() {
        let (message, other) = (Digest::of(b"message"), Digest::of(b"other"));
        let mut world = World::new(Duration::ZERO);
        learn(&mut world, Function::PrivateKeyOpen, (("web",), 7u32));
        let public_key = ((7u32,), vec![1u8, 2]);
        learn(&mut world, Function::PrivateKeyPublicKey, public_key);
        let schemes = ((7u32,), vec![0x0403u16]);
        learn(&mut world, Function::PrivateKeySchemes, schemes);
        let signature = ((7u32, 0x0403u16, message), vec![3u8, 4]);
        learn(&mut world, Function::PrivateKeySign, signature);

        let denied = ask::<_, u32>(&mut world, Function::PrivateKeyOpen, ("other",));
        assert!(matches!(denied, Err(ErrorCode::AccessDenied)));
        let key: u32 = ask(&mut world, Function::PrivateKeyOpen, ("web",)).expect("known");
        assert_eq!(key, 1);
        let public_key = ask(&mut world, Function::PrivateKeyPublicKey, (key,));
        assert_eq!(public_key.ok(), Some(vec![1u8, 2]));
        let schemes = ask(&mut world, Function::PrivateKeySchemes, (key,));
        assert_eq!(schemes.ok(), Some(vec![0x0403u16]));
        let sign = |world: &mut World, message| {
            ask::<_, Vec<u8>>(world, Function::PrivateKeySign, (key, 0x0403u16, message))
        };
        assert_eq!(sign(&mut world, message).ok(), Some(vec![3u8, 4]));
        assert!(sign(&mut world, other).is_err());
        let unknown = encoded(&(7u32, 0x0403u16, message));
        assert_eq!(world.answer(Function::PrivateKeySign, &unknown), None);
        assert!(ask::<_, ()>(&mut world, Function::PrivateKeyDrop, (key,)).is_ok());
        let dropped = encoded(&(key,));
        assert_eq!(world.answer(Function::PrivateKeyPublicKey, &dropped), None);
    }
}
