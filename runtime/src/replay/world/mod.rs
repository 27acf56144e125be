//! The world of a fitting replay: recorded data by resource, for a module that asks in another
//! order. `fitting` feeds and asks it.

mod resources;
mod source;

use std::collections::VecDeque;
use std::time::Duration;

use ring::digest;
use serde::Serialize;
use watm_component::recording::{Asked, Function, Recorded};
use watm_component::wit::flows::FlowInfo;
use watm_component::wit::generations::{Mail, Messages};
use watm_component::wit::sockets::Place;
use watm_component::wit::types::ErrorCode;

use self::resources::{Facts, Key, Resources};
use self::source::Source;
use super::answers::{done, encoded, refused};

/// The place of a socket in recordings of modules that did not ask for it.
const ALONE: Place = Place {
    number: 0,
    count: 1,
};

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
        self.resources.dial(recorded, token)
    }

    /// Notes that the latest call of `dial` was answered with this token.
    pub(super) fn dialled(&mut self, token: u64) {
        self.resources.dialled(token);
    }

    /// Maps tokens of the recording to those of this run.
    pub(super) fn tokens(&self, recorded: &[u64]) -> Vec<u64> {
        let tokens = recorded.iter();
        tokens
            .filter_map(|token| self.resources.token(*token))
            .collect()
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
        let resources = &mut self.resources;
        let answer = match function.asked(arguments)? {
            Asked::DatagramSocketOpen { label, token } => resources.open(Key::Socket(label), token),
            Asked::PacketDeviceOpen { label, token } => resources.open(Key::Device(label), token),
            Asked::ListenerOpen { label, token } => resources.open(Key::Listener(label), token),
            // A recording ends when another generation begins, so the mailbox stays empty.
            Asked::MailboxOpen { token } => resources.open(Key::Mailbox, token),
            Asked::OpenStream { info, token } => {
                resources.open_next(Facts::Stream, &ends(&info), token)
            }
            Asked::OpenDatagrams { info, token } => {
                resources.open_next(Facts::Datagrams, &ends(&info), token)
            }
            Asked::Connect { destination, token } => {
                resources.open_next(Facts::Outgoing, &destination, token)
            }
            Asked::LookupStart { name, port, token } => {
                resources.open_next(Facts::Lookup, &(name, port), token)
            }
            Asked::LookupAddresses { lookup } => resources.source(lookup)?.addresses(),
            Asked::PrivateKeyOpen { name } => resources.signing.open(name),
            Asked::PrivateKeyPublicKey { key } => done(&resources.signing.key(key)?.public_key),
            Asked::PrivateKeySchemes { key } => done(&resources.signing.key(key)?.schemes),
            Asked::PrivateKeySign {
                key,
                scheme,
                message,
            } => resources.signing.key(key)?.sign(scheme, message),
            Asked::PrivateKeyDrop { key } => done(&resources.signing.close(key)),
            Asked::ListenerAccept { listener, token } => resources.accept(listener, token)?,
            Asked::DatagramSocketReceive {
                socket,
                max,
                max_bytes,
            } => resources.source(socket)?.receive(max, max_bytes),
            Asked::DatagramSocketPlace { socket } => {
                done(&resources.source(socket)?.place.unwrap_or(ALONE))
            }
            Asked::DatagramSocketPass { .. } => done(&()),
            Asked::DatagramSocketPassed {
                socket,
                max,
                max_bytes,
            } => resources.source(socket)?.passed(max, max_bytes),
            Asked::DatagramFlowReceive {
                flow,
                max,
                max_bytes,
            } => resources.source(flow)?.receive_of_flow(max, max_bytes),
            Asked::ByteStreamRead { stream, max } => resources.source(stream)?.read(max),
            Asked::DatagramSocketSend {
                payload, datagrams, ..
            } => sent(payload.len, datagrams.iter().map(|info| info.len))
                .map_or_else(refused, |count| done(&count)),
            Asked::DatagramFlowSend {
                flow,
                payload,
                lengths,
            } => match sent(payload.len, lengths.iter().copied()) {
                Ok(count) => resources.source(flow)?.written(count),
                Err(code) => refused(code),
            },
            Asked::ByteStreamWrite { stream, data } => resources.source(stream)?.written(data.len),
            Asked::PacketDeviceReceive {
                device,
                max,
                max_bytes,
            } => resources.source(device)?.receive_packets(max, max_bytes),
            Asked::PacketDeviceSend {
                payload, packets, ..
            } => sent(payload.len, packets.iter().map(|info| info.len))
                .map_or_else(refused, |count| done(&count)),
            Asked::PacketDeviceMtu { device } => done(&resources.source(device)?.mtu?),
            Asked::PacketDeviceSetOffloads { device, .. } => {
                done(&resources.source(device)?.offloads?)
            }
            Asked::DatagramSocketLongest { socket, remote } => {
                resources.source(socket)?.longest_to(&remote)
            }
            Asked::DatagramSocketTakeUnreachable { socket } => {
                done(&std::mem::take(&mut resources.source(socket)?.unreachable))
            }
            Asked::DatagramSocketLocalAddress { socket: handle }
            | Asked::ListenerLocalAddress { listener: handle } => {
                done(&resources.source(handle)?.local?)
            }
            Asked::ByteStreamRemoteAddress { stream } => done(&resources.source(stream)?.remote),
            Asked::MailboxReceive { .. } => done(&no_mail()),
            Asked::MailboxSend { messages, .. } => done(&(messages.len() as u32)),
            Asked::DatagramSocketDrop { socket: handle }
            | Asked::PacketDeviceDrop { device: handle }
            | Asked::MailboxDrop { mailbox: handle }
            | Asked::LookupDrop { lookup: handle }
            | Asked::ListenerDrop { listener: handle }
            | Asked::ByteStreamDrop { stream: handle }
            | Asked::DatagramFlowDrop { flow: handle } => done(&resources.close(handle)),
            Asked::RandomBytes { len } => done(&self.random_bytes(len as usize)),
            Asked::RandomU64 {} => {
                let bytes: [u8; 8] = std::array::from_fn(|_| self.random_byte());
                done(&u64::from_le_bytes(bytes))
            }
            Asked::WallClock {} => done(&self.wall_clock()),
            Asked::Accepts { kind, destination } => done(&resources.accepts(&(kind, destination))),
            Asked::ByteStreamShutdown { .. }
            | Asked::ByteStreamReset { .. }
            | Asked::ByteStreamConnecting { .. }
            | Asked::ByteStreamConnected { .. }
            | Asked::DatagramSocketSetDontFragment { .. }
            | Asked::DatagramFlowSetLongest { .. }
            | Asked::Coalesce { .. }
            | Asked::AeadKeyCreate { .. }
            | Asked::Log { .. } => done(&()),
        };
        Some(answer)
    }

    /// Returns the next recorded time, or the last one again.
    fn wall_clock(&mut self) -> Duration {
        self.time = self.times.pop_front().unwrap_or(self.time);
        self.time
    }

    fn random_bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.random_byte()).collect()
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

    /// Returns `None` where the recording says nothing that a replay needs.
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
            Recorded::PacketDeviceOpen {
                label,
                token,
                outcome,
            } => resources.opened(Key::Device(label), token, outcome),
            Recorded::ListenerOpen {
                label,
                token,
                outcome,
            } => resources.opened(Key::Listener(label), token, outcome),
            Recorded::OpenStream {
                info,
                token,
                outcome,
            } => resources.opened_next(Facts::Stream, &ends(&info), token, outcome),
            Recorded::OpenDatagrams {
                info,
                token,
                outcome,
            } => resources.opened_next(Facts::Datagrams, &ends(&info), token, outcome),
            Recorded::Connect {
                destination,
                token,
                outcome,
            } => resources.opened_next(Facts::Outgoing, &destination, token, outcome),
            Recorded::LookupStart {
                name,
                port,
                token,
                outcome,
            } => resources.opened_next(Facts::Lookup, &(name, port), token, outcome),
            Recorded::LookupAddresses { lookup, outcome } => {
                resources.recorded(lookup)?.learn_addresses(outcome);
            }
            Recorded::PrivateKeyOpen { name, outcome } => {
                resources.signing.opened(name, outcome.done()?);
            }
            Recorded::PrivateKeyPublicKey { key, outcome } => {
                resources.signing.recorded(key)?.public_key = outcome.done()?;
            }
            Recorded::PrivateKeySchemes { key, outcome } => {
                resources.signing.recorded(key)?.schemes = outcome.done()?;
            }
            Recorded::PrivateKeySign {
                key,
                scheme,
                message,
                outcome,
            } => {
                let signature = outcome.done()?;
                let key = resources.signing.recorded(key)?;
                key.signed(scheme, message, signature);
            }
            Recorded::ListenerAccept {
                listener,
                token,
                outcome,
            } => resources.accepted(listener, token, outcome.done()??)?,
            Recorded::DatagramSocketReceive {
                socket, outcome, ..
            } => resources.recorded(socket)?.learn_batch(outcome)?,
            Recorded::DatagramSocketPlace { socket, outcome } => {
                resources.recorded(socket)?.place = Some(outcome.done()?);
            }
            Recorded::DatagramSocketPassed {
                socket, outcome, ..
            } => resources.recorded(socket)?.learn_passed(outcome.done()?)?,
            Recorded::PacketDeviceReceive {
                device, outcome, ..
            } => resources.recorded(device)?.learn_packets(outcome)?,
            Recorded::PacketDeviceMtu { device, outcome } => {
                resources.recorded(device)?.mtu = Some(outcome.done()?);
            }
            Recorded::PacketDeviceSetOffloads {
                device, outcome, ..
            } => resources.recorded(device)?.offloads = Some(outcome.done()?),
            Recorded::DatagramFlowReceive { flow, outcome, .. } => {
                resources.recorded(flow)?.learn_datagrams(outcome)?;
            }
            Recorded::ByteStreamRead {
                stream, outcome, ..
            } => resources.recorded(stream)?.learn_bytes(outcome),
            Recorded::ByteStreamWrite {
                stream: handle,
                outcome,
                ..
            }
            | Recorded::DatagramFlowSend {
                flow: handle,
                outcome,
                ..
            } => resources.recorded(handle)?.write_error = Some(outcome.refused()?),
            Recorded::DatagramSocketLongest {
                socket,
                remote,
                outcome,
            } => {
                let longest = outcome.done()?;
                let source = resources.recorded(socket)?;
                source.longest.insert(encoded(&remote), longest);
            }
            Recorded::DatagramSocketTakeUnreachable { socket, outcome } => {
                let hosts = outcome.done()?;
                resources.recorded(socket)?.unreachable.extend(hosts);
            }
            Recorded::DatagramSocketLocalAddress {
                socket: handle,
                outcome,
            }
            | Recorded::ListenerLocalAddress {
                listener: handle,
                outcome,
            } => resources.recorded(handle)?.local = Some(outcome.done()?),
            Recorded::ByteStreamRemoteAddress { stream, outcome } => {
                resources.recorded(stream)?.remote = outcome.done()?;
            }
            Recorded::RandomBytes { outcome, .. } => self.random.extend(outcome.done()?),
            Recorded::RandomU64 { outcome } => self.random.extend(outcome.done()?.to_le_bytes()),
            Recorded::WallClock { outcome } => self.times.push_back(outcome.done()?),
            Recorded::Accepts {
                kind,
                destination,
                outcome,
            } => resources.decided(&(kind, destination), outcome.done()?),
            // The host returns no data for these.
            Recorded::DatagramSocketSend { .. }
            | Recorded::DatagramSocketPass { .. }
            | Recorded::PacketDeviceSend { .. }
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
            | Recorded::PacketDeviceDrop { .. }
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

/// Returns the number of datagrams sent, or an error if their lengths are not those of the payload.
fn sent(payload: u32, lengths: impl ExactSizeIterator<Item = u32>) -> Result<u32, ErrorCode> {
    let count = lengths.len() as u32;
    match lengths.map(u64::from).sum::<u64>() == u64::from(payload) {
        true => Ok(count),
        false => Err(ErrorCode::InvalidArgument),
    }
}

fn ends(info: &FlowInfo) -> impl Serialize {
    (&info.source, &info.destination)
}

fn no_mail() -> Mail {
    Mail {
        messages: Messages {
            payload: Vec::new(),
            messages: Vec::new(),
        },
        ended: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use watm_component::recording::{Digest, Outcome};
    use watm_component::wit::sockets::{DatagramBatch, DatagramInfo, Ecn};
    use watm_component::wit::types::{Destination, IpAddress, IpSocketAddress};

    use super::*;

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
