//! The table of the imports that are recorded and replayed. The recording host writes each call by
//! it, `describe` shows them, and `replay` reads them.

#![allow(
    missing_docs,
    reason = "the names are those of `wit/`, which describes them"
)]

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::ser;
use serde_derive::{Deserialize, Serialize};

use super::describe::show;
use super::{Digest, Outcome};
use crate::wit::crypto::AeadAlgorithm;
use crate::wit::flows::{Datagrams, FlowInfo, Kind};
use crate::wit::generations::{Mail, MessageInfo};
use crate::wit::log::Level;
use crate::wit::packets::{Offloads, PacketBatch, PacketInfo};
use crate::wit::sockets::{DatagramBatch, DatagramInfo, Direction, Place};
use crate::wit::types::{Destination, ErrorCode, IpAddress, IpSocketAddress};

/// A row of the table, as a type: the recording host names it for each call.
pub trait Import {
    const FUNCTION: Function;
    /// The answer to the module if the call succeeds.
    type Answer: ser::Serialize + DeserializeOwned;
}

/// Makes the types of the table from rows: the name here, the name in `wit/`, the recorded
/// arguments and the recorded answer.
macro_rules! imports {
    ($($import:ident = $name:literal ($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        /// A function that a module imports. New variants go to the end: the file holds their
        /// numbers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Function {
            $($import,)*
        }

        impl Function {
            /// Returns the name in `wit/`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Function::$import => $name,)*
                }
            }

            /// Reads the arguments of a call. `None` if they are not of the table's types.
            pub fn asked(self, arguments: &[u8]) -> Option<Asked> {
                match self {
                    $(Function::$import => {
                        let ($($argument,)*) = postcard::from_bytes(arguments).ok()?;
                        Some(Asked::$import { $($argument),* })
                    })*
                }
            }

            /// Reads a recorded call: its arguments and its outcome. `None` if they are not of the
            /// table's types.
            pub fn recorded(self, call: &[u8]) -> Option<Recorded> {
                match self {
                    $(Function::$import => {
                        let (($($argument,)*), outcome) = postcard::take_from_bytes(call).ok()?;
                        let outcome = postcard::from_bytes(outcome).ok()?;
                        Some(Recorded::$import { $($argument,)* outcome })
                    })*
                }
            }

            /// Shows the arguments at the beginning of `bytes`, for people.
            pub(super) fn show_arguments(self, bytes: &[u8]) -> Option<String> {
                match self {
                    $(Function::$import => show::<($($type,)*)>(bytes),)*
                }
            }
        }

        /// A call of the module, in a replay.
        #[derive(Debug)]
        pub enum Asked {
            $($import { $($argument: $type),* },)*
        }

        /// A call of the module, in a recording.
        #[derive(Debug)]
        pub enum Recorded {
            $($import { $($argument: $type,)* outcome: Outcome<$answer> },)*
        }

        /// The rows of the table.
        pub mod import {
            use super::*;

            $(
                pub struct $import;

                impl Import for $import {
                    const FUNCTION: Function = Function::$import;
                    type Answer = $answer;
                }
            )*
        }

        #[cfg(test)]
        const ALL: &[Function] = &[$(Function::$import),*];
    };
}

imports! {
    DatagramSocketOpen = "sockets.datagram-socket.open" (label: String, token: u64) -> u32;
    DatagramSocketReceive = "sockets.datagram-socket.receive"
        (socket: u32, max: u32, max_bytes: u32) -> DatagramBatch;
    DatagramSocketSend = "sockets.datagram-socket.send"
        (socket: u32, payload: Digest, datagrams: Vec<DatagramInfo>) -> u32;
    DatagramSocketLocalAddress = "sockets.datagram-socket.local-address"
        (socket: u32) -> IpSocketAddress;
    DatagramSocketDrop = "sockets.datagram-socket (drop)" (socket: u32) -> ();
    ByteStreamRead = "sockets.byte-stream.read" (stream: u32, max: u32) -> Option<Vec<u8>>;
    ByteStreamWrite = "sockets.byte-stream.write" (stream: u32, data: Digest) -> u32;
    ByteStreamShutdown = "sockets.byte-stream.shutdown" (stream: u32, direction: Direction) -> ();
    ByteStreamReset = "sockets.byte-stream.reset" (stream: u32, reason: ErrorCode) -> ();
    ByteStreamRemoteAddress = "sockets.byte-stream.remote-address"
        (stream: u32) -> Option<IpSocketAddress>;
    ByteStreamDrop = "sockets.byte-stream (drop)" (stream: u32) -> ();
    ListenerOpen = "sockets.listener.open" (label: String, token: u64) -> u32;
    ListenerAccept = "sockets.listener.accept" (listener: u32, token: u64) -> Option<u32>;
    ListenerLocalAddress = "sockets.listener.local-address" (listener: u32) -> IpSocketAddress;
    ListenerDrop = "sockets.listener (drop)" (listener: u32) -> ();
    OpenStream = "flows.open-stream" (info: FlowInfo, token: u64) -> u32;
    OpenDatagrams = "flows.open-datagrams" (info: FlowInfo, token: u64) -> u32;
    DatagramFlowReceive = "flows.datagram-flow.receive"
        (flow: u32, max: u32, max_bytes: u32) -> Option<Datagrams>;
    DatagramFlowSend = "flows.datagram-flow.send"
        (flow: u32, payload: Digest, lengths: Vec<u32>) -> u32;
    DatagramFlowDrop = "flows.datagram-flow (drop)" (flow: u32) -> ();
    // The results of a key are not recorded: they depend only on it and on the module's inputs.
    AeadKeyCreate = "crypto.aead-key.create" (algorithm: AeadAlgorithm, key: Digest) -> ();
    // The last argument is the length of the whole message.
    Log = "log.log" (level: Level, target: String, message: String, len: u64) -> ();
    RandomBytes = "random.get-random-bytes" (len: u64) -> Vec<u8>;
    RandomU64 = "random.get-random-u64" () -> u64;
    WallClock = "wall-clock.now" () -> Duration;
    Connect = "sockets.connect" (destination: Destination, token: u64) -> u32;
    MailboxOpen = "generations.mailbox.open" (token: u64) -> u32;
    MailboxReceive = "generations.mailbox.receive" (mailbox: u32, max: u32, max_bytes: u32) -> Mail;
    MailboxSend = "generations.mailbox.send"
        (mailbox: u32, payload: Digest, messages: Vec<MessageInfo>) -> u32;
    MailboxDrop = "generations.mailbox (drop)" (mailbox: u32) -> ();
    LookupStart = "names.lookup.start" (name: String, port: u16, token: u64) -> u32;
    LookupAddresses = "names.lookup.addresses" (lookup: u32) -> Option<Vec<IpSocketAddress>>;
    LookupDrop = "names.lookup (drop)" (lookup: u32) -> ();
    PrivateKeyOpen = "signing.private-key.open" (name: String) -> u32;
    PrivateKeyPublicKey = "signing.private-key.public-key" (key: u32) -> Vec<u8>;
    PrivateKeySchemes = "signing.private-key.schemes" (key: u32) -> Vec<u16>;
    PrivateKeySign = "signing.private-key.sign"
        (key: u32, scheme: u16, message: Digest) -> Vec<u8>;
    PrivateKeyDrop = "signing.private-key (drop)" (key: u32) -> ();
    ByteStreamConnecting = "sockets.byte-stream.connecting" (stream: u32) -> ();
    ByteStreamConnected = "sockets.byte-stream.connected" (stream: u32) -> ();
    Accepts = "flows.accepts" (kind: Kind, destination: Destination) -> bool;
    DatagramSocketLongest = "sockets.datagram-socket.longest"
        (socket: u32, remote: IpSocketAddress) -> Option<u32>;
    DatagramSocketSetDontFragment = "sockets.datagram-socket.set-dont-fragment"
        (socket: u32, on: bool) -> ();
    DatagramFlowSetLongest = "flows.datagram-flow.set-longest" (flow: u32, bytes: u32) -> ();
    DatagramSocketTakeUnreachable = "sockets.datagram-socket.take-unreachable" (socket: u32) -> Vec<IpAddress>;
    Coalesce = "pacing.coalesce" (microseconds: u32) -> ();
    PacketDeviceOpen = "packets.packet-device.open" (label: String, token: u64) -> u32;
    PacketDeviceReceive = "packets.packet-device.receive"
        (device: u32, max: u32, max_bytes: u32) -> PacketBatch;
    PacketDeviceSend = "packets.packet-device.send"
        (device: u32, payload: Digest, packets: Vec<PacketInfo>) -> u32;
    PacketDeviceSetOffloads = "packets.packet-device.set-offloads"
        (device: u32, wanted: Offloads) -> Offloads;
    PacketDeviceMtu = "packets.packet-device.mtu" (device: u32) -> u32;
    PacketDeviceDrop = "packets.packet-device (drop)" (device: u32) -> ();
    DatagramSocketPlace = "sockets.datagram-socket.place" (socket: u32) -> Place;
    DatagramSocketPass = "sockets.datagram-socket.pass"
        (socket: u32, number: u32, payload: Digest, datagrams: Vec<DatagramInfo>) -> ();
    DatagramSocketPassed = "sockets.datagram-socket.passed"
        (socket: u32, max: u32, max_bytes: u32) -> DatagramBatch;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use wit_parser::{Resolve, WorldItem};

    use super::*;

    /// Imports that a recording lacks.
    const NOT_RECORDED: [&str; 9] = [
        // The results depend only on the key and the arguments.
        "crypto.aead-key (drop)",
        "crypto.aead-key.open",
        "crypto.aead-key.open-all",
        "crypto.aead-key.seal",
        "crypto.aead-key.seal-all",
        // A module behaves the same with and without a capture.
        "capture.packet",
        "capture.secret",
        "capture.wanted",
        // It is recorded as `pacing.coalesce`.
        "sockets.coalesce",
    ];

    /// Imports of WASI, which are not in `wit/`.
    const WASI: [Function; 3] = [
        Function::RandomBytes,
        Function::RandomU64,
        Function::WallClock,
    ];

    /// Returns the names of all functions that the world of `wit/` imports, and of the drops of its
    /// resources.
    fn imports_of_wit() -> BTreeSet<String> {
        let mut wit = Resolve::default();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
        let (package, _) = wit.push_dir(folder).expect("wit/ is valid");
        let world = wit.packages[package].worlds["module"];
        let mut names = BTreeSet::new();
        for import in wit.worlds[world].imports.values() {
            let WorldItem::Interface { id, .. } = import else {
                continue;
            };
            let interface = &wit.interfaces[*id];
            let of = interface.name.as_deref().expect("a named interface");
            for function in interface.functions.values() {
                let name = function.item_name();
                match function.kind.resource() {
                    Some(resource) => {
                        let resource = wit.types[resource].name.as_deref().expect("a name");
                        names.insert(format!("{of}.{resource} (drop)"));
                        names.insert(format!("{of}.{resource}.{name}"));
                    }
                    None => {
                        names.insert(format!("{of}.{name}"));
                    }
                }
            }
        }
        names
    }

    #[test]
    fn every_import_of_wit_is_recorded() {
        let recorded = ALL.iter().filter(|function| !WASI.contains(function));
        let known: BTreeSet<String> = recorded
            .map(|function| function.name())
            .chain(NOT_RECORDED)
            .map(str::to_owned)
            .collect();
        assert_eq!(known.len(), ALL.len() - WASI.len() + NOT_RECORDED.len());
        assert_eq!(imports_of_wit(), known);
    }
}
